# SPDX-License-Identifier: GPL-2.0
"""The test cases, one module per subject.

The comment above each case begins with `covers:`. The comment names the rows of the conformance
checklist that the case helps to show. If the checklist has no such row, the comment says in words
what the case shows.
"""
