# SPDX-License-Identifier: GPL-2.0
"""Virtual machines: a single machine (qemu), a client and a server (pair), one run of both
(session), and the control line to a machine (channel, wire)."""
