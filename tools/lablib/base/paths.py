# SPDX-License-Identifier: GPL-2.0
"""The path of the repository."""

import pathlib

REPO = pathlib.Path(__file__).resolve().parents[3]
