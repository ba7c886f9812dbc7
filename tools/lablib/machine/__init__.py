# SPDX-License-Identifier: GPL-2.0
"""Machines: one (qemu), both (pair), a run of both (session), and their control line (channel,
wire)."""
