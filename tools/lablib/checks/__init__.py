# SPDX-License-Identifier: GPL-2.0
"""The checks, and the pages that some of them write."""
