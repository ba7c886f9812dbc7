# SPDX-License-Identifier: GPL-2.0
"""Events of the kernel's tracepoints. On this machine trace-cmd records them. On the server they
are recorded by means of the files in tracefs.
"""

import re
import subprocess

from .case import check
from .env import ENV

EVENT = re.compile(r": (\w+):\s+(.*)$")
FIELD = re.compile(r'(\w+)=("[^"]*"|\S+)')
TRACEFS = "/sys/kernel/tracing"


def output(*argv):
    """Runs a program, which must succeed, and returns its output."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=ENV.patience(60), check=False)
    check(done.returncode == 0, f"{' '.join(argv)}: {done.returncode}: {done.stdout[-500:]}")
    return done.stdout


def start(t, *events):
    """Records the given events, or all events of the given subsystems, until `stop` is called or
    the case ends."""
    output("trace-cmd", "start", "-b", "8192", *(word for e in events for word in ("-e", e)))
    t.defer(output, "trace-cmd", "reset")


def stop():
    """Returns the events in order: (name of the event, its fields)."""
    output("trace-cmd", "stop")
    return events(output("trace-cmd", "show"))


def events(text):
    """Parses the text of a trace that the kernel has printed. Returns the events."""
    matches = map(EVENT.search, text.splitlines())
    return [(match[1], dict(FIELD.findall(match[2]))) for match in matches if match]


def watch_server(t, what="svcrdma_rs"):
    """Records events on the server until the end of the case. `what` is a module, whose events are
    all recorded, or one event (system/name)."""
    t.defer(t.server.call, "text", f"{TRACEFS}/events/{what}/enable", "0")
    # A write to the file `trace` clears the events that were recorded earlier.
    t.server.call("text", f"{TRACEFS}/trace", "\n")
    t.server.call("text", f"{TRACEFS}/events/{what}/enable", "1")


def of_server(t):
    """Returns the events of the server that have occurred since the recording began."""
    return events(t.server.run("cat", f"{TRACEFS}/trace"))
