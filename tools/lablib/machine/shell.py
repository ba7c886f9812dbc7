# SPDX-License-Identifier: GPL-2.0
"""An interactive shell in the client machine."""

import os
import select
import sys
import termios
import tty

from ..base.ui import say


def interact(session):
    """Connects this terminal to a shell until the shell ends."""
    channel = session.channel
    columns, lines = os.get_terminal_size() if sys.stdin.isatty() else (80, 24)
    say("a shell in the client; exit ends both machines")
    say("/mnt/nfs is the mount; `on-server CMD` runs a command in the server")
    command = channel.start(
        ["sh", "-c", f"stty rows {lines} cols {columns}; exec bash -i"],
        env=session.environment | {"TERM": os.environ.get("TERM", "dumb"),
                                   "PS1": r"client:\w\$ "},
        cwd="/mnt/nfs", use_pty=True, stdin=None)
    saved = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    try:
        if saved:
            tty.setraw(sys.stdin, termios.TCSADRAIN)
        pump(channel, command)
    finally:
        if saved:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def pump(channel, command):
    """Sends the typed keys to the shell until the shell or the input ends."""
    watched = [sys.stdin]
    while not command.ended.wait(0 if watched else 0.2):
        channel.check_alive()
        ready, _, _ = select.select(watched, [], [], 0.2)
        if ready:
            data = os.read(sys.stdin.fileno(), 4096)
            # At a terminal, the character control-D marks the end of the input.
            command.write(data or b"\x04")
            if not data:
                watched = []
