# SPDX-License-Identifier: GPL-2.0
"""A test case, and the context that its function gets."""

import contextlib
import dataclasses
import random
from collections.abc import Callable

from . import module, mounts, server, wait
from .env import ENV

SHOWN_ITEMS = 5


class Skip(Exception):
    """Raised to skip a case, because the environment lacks something that the case needs. The text
    tells the user the reason."""


@dataclasses.dataclass
class Case:
    """A test function with the arguments of its decorator."""

    function: Callable
    number: int        # number of the case in the list of all cases
    # NFS versions with which the case runs; if empty, the case does not depend on the version
    versions: tuple
    seconds: float     # time limit of a run of small size on the stock kernel
    full_seconds: float
    clients: tuple
    full_only: bool
    stock_only: bool
    debug_only: bool
    provider: str | None  # the only provider with which the case runs
    server: str | None  # the only transport of the server with which the case runs
    loaded: bool       # whether the transport module is loaded before the case starts
    # whether a run of small size uses only one NFS version, because the case takes long
    slow: bool

    @property
    def name(self):
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"

    def limit(self):
        """Returns the number of seconds after which the case is killed."""
        return ENV.patience(self.full_seconds if ENV.full else self.seconds)

    def applies(self):
        """Returns whether the case can run with the settings of this run."""
        return (ENV.client in self.clients and (ENV.full or not self.full_only)
                and self.provider in (ENV.provider, None)
                and self.server in (ENV.serving, None)
                and not (self.stock_only if ENV.debug else self.debug_only))

    def variants(self, is_wanted):
        """Returns the versions with which to run the case, or (None,) if the case does not depend
        on the version. Leaves out the versions for which `is_wanted` returns false."""
        possible = [v for v in ENV.versions if v in self.versions] if self.versions else [None]
        wanted = [v for v in possible if is_wanted(v)]
        if len(wanted) > 1 and (ENV.one_version or (self.slow and not ENV.every_version)):
            # Successive cases use different versions. The seed selects the version of the first
            # case.
            return [wanted[(self.number + ENV.seed) % len(wanted)]]
        return wanted


CASES = []


def case(versions=("3", "4.0", "4.1", "4.2"), seconds=60, full_seconds=900,
         clients=("ours", "intree"), full_only=False, stock_only=False, debug_only=False,
         provider=None, server=None, loaded=True, slow=False):
    """Makes a function a test case. The function is called with a `Context`."""
    def decorate(function):
        CASES.append(Case(function, len(CASES), versions or (), seconds, full_seconds, clients,
                          full_only, stock_only, debug_only, provider, server,
                          loaded, slow))
        return function
    return decorate


class Context:
    """The methods that a case uses during one run. They also undo the changes that the case made.
    """

    def __init__(self, version, log, helper):
        self.version, self.log, self.server = version, log, helper
        self.stack, self.witnesses = contextlib.ExitStack(), []
        self.emptied = self.stack.enter_context(contextlib.ExitStack())
        self.random = random.Random(f"{ENV.seed} {version}")

    def defer(self, function, *args, **named):
        """Registers a function that is called when the case has ended. The function that was
        registered last is called first."""
        self.stack.callback(function, *args, **named)

    def on_failure(self, tell):
        """If the case fails, prints the result of `tell()` before the changes of the case are
        undone."""
        self.witnesses.append(tell)

    def mount(self, options="", export=None, where=None, version=None,
              seconds=mounts.MOUNT_SECONDS, **more):
        """Mounts an export, and unmounts it at the end of the case. Returns a `mounts.Mount`."""
        mount = self.unmounted(options, export, where, version, **more)
        mount.make(seconds)
        return mount

    def unmounted(self, options="", export=None, where=None, version=None, **more):
        """Returns a `mounts.Mount` that is not mounted yet."""
        mount = mounts.Mount(version or self.version, options, export or ENV.mem, where, **more)
        self.defer(mount.remove)
        return mount

    def directory(self, mount, name="case"):
        """Creates an empty directory in the mount, and returns it. The directory is removed at the
        end of the case, after the file systems were unmounted.

        At that time no client has a delegation of the directory. If a client had one, the server
        would have to recall it before the removal. The recall could take until a lease ends,
        because the case may have broken the connection for callbacks.
        """
        there = f"{mount.export}/{name}"
        self.server.call("rmtree", there)
        self.server.call("mkdir", there)
        self.emptied.callback(self.server.call, "rmtree", there)
        return Directory(f"{mount.where}/{name}", there)

    def another_server(self):
        """Returns a second helper process in the server, for commands that take long there."""
        helper = server.Server()
        self.defer(helper.close)
        return helper

    @staticmethod
    def note(text):
        """Prints a line for the reader of the results."""
        print(text, flush=True)

    def close(self):
        self.stack.close()


@dataclasses.dataclass
class Directory:
    """A directory of a mount, with its path on the client and its path on the server."""

    here: str
    there: str

    def path(self, name):
        return f"{self.here}/{name}", f"{self.there}/{name}"


def equal(found, expected, what):
    """Raises an error if the two values differ."""
    if found == expected:
        return
    if isinstance(found, (list, dict)) and len(found) > SHOWN_ITEMS:
        extra = [item for item in found if item not in expected][:SHOWN_ITEMS]
        missing = [item for item in expected if item not in found][:SHOWN_ITEMS]
        raise AssertionError(f"{what}: {len(found)} of {len(expected)}; too much: {extra}, "
                             f"missing: {missing}")
    raise AssertionError(f"{what}: {found!r}, expected {expected!r}")


def check(condition, what):
    """Raises an error unless the condition is true."""
    if not condition:
        raise AssertionError(what)


__all__ = ["CASES", "ENV", "Context", "Skip", "case", "check", "equal", "module", "wait"]
