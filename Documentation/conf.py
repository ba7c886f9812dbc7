# SPDX-License-Identifier: GPL-2.0
"""The configuration of Sphinx for `make htmldocs`."""

import pathlib
import sys

# This directory contains the extension `results`, which makes tables from tools/results.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

project = "xprtrdma_rs"
author = "The xprtrdma_rs developers"
html_title = project
html_theme = "classic"
extensions = ["results"]
# Sphinx warns of references without a target.
nitpicky = True
