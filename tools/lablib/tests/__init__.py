# SPDX-License-Identifier: GPL-2.0
"""Unit tests of lablib. `python3 -m unittest` runs these tests."""
