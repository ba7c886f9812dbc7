# SPDX-License-Identifier: GPL-2.0
"""The configuration of Sphinx for `make htmldocs`."""

import pathlib
import sys

# The directory of the directive that makes tables from tools/results.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

project = "xprtrdma_rs"
author = "The xprtrdma_rs developers"
html_title = project
html_theme = "classic"
extensions = ["results"]
# A reference without a target is a warning.
nitpicky = True
