# SPDX-License-Identifier: GPL-2.0
"""The error messages that the administrator's guide lists for commands."""

import re

from .case import check
from .env import REPO

HEADING = "What a command says\n==="
TERM = re.compile(r'^``(\w+)``: "([^"]+)"$', re.MULTILINE)


def texts(command):
    """Returns the messages that the guide lists for a command."""
    guide = (REPO / "Documentation/messages.rst").read_text()
    section = guide.split(HEADING, 1)[1].split("\n===", 1)[0]
    found = [text for name, text in TERM.findall(section) if name == command]
    check(found, f"the guide has no text of {command}")
    return found


def explained(command, said):
    """Returns the message that the output of a command contains. Exactly one message of the guide's
    list must be in the output."""
    found = [text for text in texts(command) if text in said]
    check(len(found) == 1, f"{command} says {said!r}; the guide has {texts(command)}")
    return found[0]
