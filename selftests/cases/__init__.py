# SPDX-License-Identifier: GPL-2.0
"""The test cases, one module per subject.

Above each case, `covers:` names the rows of the conformance checklist that it
helps to show, and words in plain English where there is no row.
"""
