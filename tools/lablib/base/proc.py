# SPDX-License-Identifier: GPL-2.0
"""Child processes that never outlive the lab.

The kernel kills each child when the lab ends (`setpriv --pdeathsig`). So no machine keeps running,
even if the lab is killed. The kernel kills a child as soon as the thread that started the child
ends. So only the main thread may start children.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

from .ui import LabError, say, step

TAIL_BYTES = 4000
# A command that runs another command with the lowest priority. If the scheduler divides time among
# sessions (autogroup), a nice value has an effect only within its session. So the nice value of the
# session is set, too.
BEHIND = ("sh", "-c", '{ echo 19 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 19 "$@"',
          "sh")


def spawn(argv, **kwargs):
    """Starts a child process in a new session. The kernel kills the child when the lab ends."""
    assert threading.current_thread() is threading.main_thread()
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    guard = ["setpriv", "--pdeathsig", "KILL", "--", *(BEHIND if Behind.now else ())]
    child = subprocess.Popen(guard + [str(a) for a in argv],
                             start_new_session=True, **kwargs)
    Behind.latest = child
    return child


class Behind:
    """Remembers the latest child process, and whether new children run with low priority."""

    now: bool = False
    latest: subprocess.Popen | None = None

    @classmethod
    def begin(cls):
        """Makes children run with low priority until this process receives SIGUSR1. The signal
        means that another process waits for the result.
        """
        cls.now = True
        signal.signal(signal.SIGUSR1, lambda *_: cls.end())

    @classmethod
    def end(cls):
        cls.now, child = False, cls.latest
        if child and child.poll() is None:
            os.setpriority(os.PRIO_PGRP, child.pid, os.nice(0))
            with contextlib.suppress(OSError), open(f"/proc/{child.pid}/autogroup", "w") as nice:
                nice.write("0")


def stop(child, grace=5):
    """Stops a child and its whole session, first with SIGTERM and then with SIGKILL."""
    for sig, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 10)):
        if child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sig)
        try:
            child.wait(wait)
        except subprocess.TimeoutExpired:
            continue


def last_line(path):
    """Returns the last non-empty line of a growing log, in brackets and shortened for a progress
    display on the terminal."""
    lines = [line for line in tail(path).splitlines() if line.strip()]
    return f"[{lines[-1].strip()[:90]}]" if lines else ""


def tail(path):
    """Returns the last part of a log file as text."""
    with open(path, "rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - TAIL_BYTES))
        return log.read().decode(errors="replace")


def run_logged(text, argv, log, timeout, env=None, cwd=None):
    """Runs a slow command as one step, and writes its output to `log`. Raises an error if the
    command fails."""
    with step(text, lambda: last_line(log)), open(log, "ab") as out:
        child = spawn(argv, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise LabError(f"{text}: no end after {timeout} s; see {log}") from None
        finally:
            stop(child)
    if status:
        raise LabError(f"{text}: exit status {status}; end of {log}:\n{tail(log)}")


def run_shown(text, argv, log, timeout):
    """Runs a command like run_logged, but also shows the output while the command runs."""
    say(text)
    with open(log, "ab") as copy:
        child = spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        alarm = threading.Timer(timeout, stop, [child])
        alarm.start()
        try:
            for line in child.stdout:
                copy.write(line)
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
            status = child.wait()
        finally:
            alarm.cancel()
            stop(child)
    if status:
        raise LabError(f"{text}: exit status {status}; all of it in {log}")


def output(argv, timeout=60, env=None):
    """Runs a quick command and returns its standard output. Raises an error if the command fails.
    """
    try:
        done = subprocess.run([str(a) for a in argv], capture_output=True, text=True,
                              timeout=timeout, env=env, stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"{argv[0]}: no end after {timeout} s") from None
    if done.returncode:
        raise LabError(f"{' '.join(map(str, argv))}: exit status {done.returncode}: "
                       f"{done.stderr.strip()[-500:]}")
    return done.stdout
