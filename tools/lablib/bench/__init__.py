# SPDX-License-Identifier: GPL-2.0
"""Counts and times of ours beside the in-tree client."""
