# SPDX-License-Identifier: GPL-2.0
"""How Sphinx makes HTML of these pages: make htmldocs."""

project = "xprtrdma_rs"
author = "The xprtrdma_rs developers"
html_title = project
html_theme = "classic"
# Every reference must lead somewhere.
nitpicky = True
