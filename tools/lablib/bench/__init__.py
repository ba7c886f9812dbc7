# SPDX-License-Identifier: GPL-2.0
"""Measures counts and times of our client beside those of the in-tree client."""
