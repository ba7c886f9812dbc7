# SPDX-License-Identifier: GPL-2.0
"""Compares our client and the in-tree client: measures durations, and counts events."""
