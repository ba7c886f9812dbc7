# SPDX-License-Identifier: GPL-2.0
"""Where the repository is."""

import pathlib

REPO = pathlib.Path(__file__).resolve().parents[3]
