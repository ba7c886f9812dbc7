# SPDX-License-Identifier: GPL-2.0
"""The directive ``results``: a table from tools/results, made when a page is built."""

import result_tables
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


class Results(Directive):
    """Inserts the table that the argument names."""

    required_arguments = 1

    def run(self):
        """Returns the document nodes of the table."""
        name = self.arguments[0]
        if name not in result_tables.TABLES:
            raise self.error(f"no table of results is named {name}")
        node = nodes.Element()
        self.state.nested_parse(StringList(result_tables.lines(name), f"results: {name}"),
                                self.content_offset, node)
        return node.children


def setup(app):
    """Registers the directive `results` with Sphinx."""
    app.add_directive("results", Results)
    return {"parallel_read_safe": True}
