# SPDX-License-Identifier: GPL-2.0
"""How Sphinx makes HTML of these pages: make htmldocs."""

import pathlib
import sys

# Of the directive that makes tables of tools/results.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

project = "xprtrdma_rs"
author = "The xprtrdma_rs developers"
html_title = project
html_theme = "classic"
extensions = ["results"]
# Every reference must lead somewhere.
nitpicky = True
