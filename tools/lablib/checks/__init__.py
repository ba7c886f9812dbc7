# SPDX-License-Identifier: GPL-2.0
"""The checks of the project. Some checks also write pages of the documentation."""
