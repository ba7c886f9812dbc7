# SPDX-License-Identifier: GPL-2.0
"""Tests of the lab's own judgement; `python3 -m unittest` runs them."""
