# SPDX-License-Identifier: GPL-2.0
"""What is made: root file system, kernels, the module, and what tests bring along."""
