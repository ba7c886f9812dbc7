# SPDX-License-Identifier: GPL-2.0
"""Functions of a case that run in other processes or in threads, for instance to load the mount."""

import os
import select
import signal
import sys
import threading
import time
import traceback
from typing import ClassVar

from . import wait
from .env import ENV


class Worker:
    """A child process that runs a function. `stop` requests that the process ends."""

    # The parent's ends of the pipes that stop the children: a child ends when the parent closes the
    # child's pipe. A new child inherits all these ends, and closes them. Otherwise the pipes of the
    # other children would stay open, and those children would keep running.
    stops: ClassVar[set[int]] = set()

    def __init__(self, function, *args):
        result_r, result_w = os.pipe()
        stop_r, stop_w = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(result_r)
            for fd in (stop_w, *self.stops):
                os.close(fd)
            self.stops.clear()
            self.child(function, args, result_w, stop_r)
        os.close(result_w)
        os.close(stop_r)
        self.result: int | None = result_r
        self.stop_fd: int | None = stop_w
        self.name = function.__name__
        self.stops.add(stop_w)

    @staticmethod
    def child(function, args, result, stop):
        """Runs the function in the child process. Never returns."""
        status = 1
        try:
            poll = select.poll()
            poll.register(stop, select.POLLHUP)
            text = function(lambda: bool(poll.poll(0)), *args)
            os.write(result, str(text if text is not None else "").encode())
            status = 0
        except BaseException:  # noqa: BLE001  # reported by the parent
            os.write(result, traceback.format_exc(limit=-4).encode()[-4000:])
        finally:
            os._exit(status)

    def stop(self):
        """Requests that the child ends."""
        if self.stop_fd is not None:
            self.stops.discard(self.stop_fd)
            os.close(self.stop_fd)
            self.stop_fd = None

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)

    def ended(self):
        """Returns whether the child has ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reaped(self):
        """Returns whether the child has ended and `join` has waited for the child."""
        return self.result is None

    def join(self, seconds=120, killed=False, stop=True):
        """Stops the child and waits until it has ended. With `stop=False`, waits until the child
        ends without being stopped. Returns the result of the function as text."""
        if stop:
            self.stop()
        result = self.result
        if result is None:
            raise AssertionError(f"worker {self.name} ({self.pid}) was joined before")
        text, deadline = b"", time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([result], [], [], left)[0]:
                raise AssertionError(f"worker {self.name} ({self.pid}) does not end")
            data = os.read(result, 65536)
            if not data:
                break
            text += data
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(result)
        self.result = None
        self.stop()
        if killed and status == -signal.SIGKILL:
            return ""
        if status:
            raise AssertionError(f"worker {self.name}: status {status}\n{text.decode()}")
        return text.decode()


class Crew:
    """Several workers. The end of the `with` block stops the workers and collects their results."""

    def __init__(self, seconds=120):
        self.workers, self.seconds, self.results = [], seconds, []

    def start(self, function, *args):
        worker = Worker(function, *args)
        self.workers.append(worker)
        return worker

    def check(self):
        """Raises an error if a worker has ended before it was stopped."""
        for worker in self.workers:
            if worker.ended():
                worker.join()
                raise AssertionError(f"worker {worker.name} ended early")

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for worker in self.workers:
            worker.stop()
        if kind:
            for worker in self.workers:
                if not worker.ended():
                    worker.kill()
            return
        self.results = [worker.join(self.seconds) for worker in self.workers]


def together(count, work, watch=lambda: None, under_way=lambda: None):
    """Runs `work(number)` in many threads.

    `under_way` is called when all threads have been started. `watch` is called again and again
    while the threads run.
    """
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  # passed on below
            failures.append(error)

    crew = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(count)]
    for thread in crew:
        thread.start()
    under_way()

    def over():
        watch()
        return not any(thread.is_alive() for thread in crew)

    wait.until(over, ENV.patience(ENV.pick(small=80, full=1200)), "all threads done")
    if failures:
        raise failures[0]
