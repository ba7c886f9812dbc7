# SPDX-License-Identifier: GPL-2.0
"""The test cases, one module per subject.

The comment above each case begins with `covers:`. It names the rows of the conformance checklist
that the case helps to show. Where there is no row, it says in words what the case shows.
"""
