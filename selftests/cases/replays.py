# SPDX-License-Identifier: GPL-2.0
"""Calls that must not be executed twice, and whose replies were lost. The client sends these calls
again, from the same IP address or from another IP address."""

import errno
import os
import pathlib
import subprocess

from lib import faults, wait
from lib.case import ENV, case, equal
from lib.workers import Worker

# A second IP address for this machine, from which the client reconnects.
OTHER = "192.0.2.4/24"
NFSD_STATISTICS = "/proc/net/rpc/nfsd"
# Counts the threads of nfsd that wait for the disk.
BLOCKED = "for pid in $(pgrep -x nfsd); do cut -d' ' -f3 /proc/$pid/stat; done | grep -c D || true"


def remove(top):
    os.unlink(top / "file")


def remove_directory(top):
    os.rmdir(top / "directory")


def rename(top):
    os.rename(top / "file", top / "new")


def link(top):
    os.link(top / "file", top / "new")


def make_directory(top):
    os.mkdir(top / "new")


def make_link(top):
    os.symlink("file", top / "new")


def create(top):
    os.close(os.open(top / "new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


# The error of each action if the server executes the action a second time. A repeated create
# succeeds, because the server stores the create verifier with the new file, and recognises the
# repeated call by this verifier.
TWICE = {remove: "ENOENT", remove_directory: "ENOENT", rename: "ENOENT", link: "EEXIST",
         make_directory: "EEXIST", make_link: "EEXIST", create: ""}


def attempt(_, action, top):
    """Runs an action. Returns the name of the error, or an empty text if the action succeeds."""
    try:
        action(top)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "?")
    return ""


def ip(*words):
    subprocess.run(["ip", *words], timeout=ENV.patience(30), check=True)


def addresses():
    """Returns the IPv4 addresses of the interface with their prefix lengths."""
    done = subprocess.run(["ip", "-brief", "-4", "addr", "show", "dev", faults.interface()],
                          stdout=subprocess.PIPE, text=True, timeout=ENV.patience(30), check=True)
    return done.stdout.split()[2:]


def set_address(address):
    """Makes `address` the only IPv4 address of the interface."""
    for old in addresses():
        if old != address:
            ip("addr", "del", old, "dev", faults.interface())
    if not addresses():
        ip("addr", "add", address, "dev", faults.interface())


def hits(t):
    """Returns how many times the server found a call in its duplicate request cache."""
    rows = t.server.call("text", NFSD_STATISTICS).splitlines()
    return int(next(row.split()[1] for row in rows if row.startswith("rc ")))


def interrupted(t, mount, address):
    """Freezes the server's disk, runs all actions, and breaks the connection. The disk then
    continues, and the client reconnects from `address`. Returns the result of each action."""
    top = t.directory(mount)
    places = {}
    for action in TWICE:
        places[action] = pathlib.Path(top.path(action.__name__)[0])
        (places[action] / "directory").mkdir(parents=True)
        (places[action] / "file").write_text("text")
        # The directory is looked up now, so that no lookup of the directory is sent later.
        os.stat(places[action] / "file")
    os.sync()
    workers = {}
    try:
        with faults.frozen(t.server):
            for action, place in places.items():
                workers[action] = Worker(attempt, action, place)
            wait.until(lambda: int(t.server.run("sh", "-c", BLOCKED)) >= len(TWICE),
                       ENV.patience(20), "every call waits for the disk")
            faults.remove_client_device()
        # The server now executes the calls, but has no connection on which it could send the
        # replies.
        wait.until(lambda: int(t.server.run("sh", "-c", BLOCKED)) == 0,
                   ENV.patience(20), "no call waits for the disk")
    finally:
        set_address(address)
        faults.add_client_device()
    return {action: worker.join(ENV.patience(90), stop=False) for action, worker in workers.items()}


# NFSv3 has calls that must not be executed twice. In this test the replies to such calls are lost,
# and the client sends the calls again. In the first round the client sends them from the same
# address. In the second round it sends them from another address, as a client with rails may do.
# The server's duplicate request cache identifies a call by its xid and the client's address. So the
# server recognises a repeated call from the same address, but executes a repeated call from another
# address a second time. NFSv4.1 sessions do not depend on addresses. The test shows properties of
# the server and not of the client, so it runs only in full runs.
@case(versions=("3", "4.0", "4.2"), clients=("ours",), full_only=True, full_seconds=120)
def lost_replies_from_another_address(t):
    mount = t.mount(export=ENV.disk)
    at_first, = addresses()
    t.defer(set_address, at_first)
    for address in (at_first, OTHER):
        before = hits(t)
        said = interrupted(t, mount, address)
        found = hits(t) - before
        t.note(f"{address}: {found} found in the cache; "
               + ", ".join(f"{action.__name__}: {error or 'well'}"
                           for action, error in said.items()))
        again = t.version != "4.2" and address != at_first
        equal(said, TWICE if again else dict.fromkeys(TWICE, ""), f"with address {address}")
        if t.version == "3":
            equal(found, 0 if again else len(TWICE), "calls found in the cache")


# Our server recognises a client that reconnects. Its duplicate request cache finds calls that the
# client sends again on another connection.
@case(versions=("3",), clients=("ours",), server="ours", stock_only=True, seconds=60)
def calls_that_come_again_are_found(t):
    mount = t.mount(export=ENV.disk)
    at_first, = addresses()
    before = hits(t)
    said = interrupted(t, mount, at_first)
    equal(said, dict.fromkeys(TWICE, ""), "what was said")
    equal(hits(t) - before, len(TWICE), "calls found in the cache")
