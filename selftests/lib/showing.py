# SPDX-License-Identifier: GPL-2.0
"""The common part of programs that demonstrate a behaviour: a context as for a test case, the
clean-up, and the check of the kernel log.
"""

import os
import pathlib
import sys
import traceback

from lablib.guest import demo

from . import kmsg, server
from .case import Context
from .env import ENV

LOCAL = demo.LOCAL
make_tree = demo.make_tree
copy_both_ways = demo.copy_both_ways


def say(text):
    print(text, flush=True)


def run(name, show):
    """Calls the function `show` with a test context. Returns the exit status of the program, whose
    name is `name`."""
    is_there = pathlib.Path(ENV.module_file).is_file() or not ENV.ours
    if os.geteuid() or not ENV.server or not is_there:
        sys.exit(f"{name}: needs root and the lab's environment: tools/lab demo")
    log, helper = kmsg.Log(), server.Server()
    context, good = Context(None, log, helper), False
    try:
        show(context)
        good = True
    except Exception:  # noqa: BLE001  # told, then cleaned up
        say(traceback.format_exc(limit=-6))
        for tell in context.witnesses:
            say(tell())
    finally:
        context.close()
        helper.close()
    for line in log.read():
        if "xprtrdma_rs" in line:
            say(f"log: {line}")
    report = log.report()
    if report:
        say(report)
    return 0 if good and not report else 1
