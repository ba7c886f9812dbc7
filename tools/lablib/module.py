# SPDX-License-Identifier: GPL-2.0
"""Building the kernel module."""
def build(root, kernel):
    return f"build/{kernel.release}/xprtrdma_rs.ko"
