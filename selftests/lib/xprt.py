# SPDX-License-Identifier: GPL-2.0
"""Reads what the kernel shows about RDMA transports, and breaks connections of these transports."""

import os
import pathlib
import re
import signal

from . import wait
from .env import ENV

COLUMNS = (
    "port", "bind_count", "connect_count", "connect_time", "idle_time", "sends", "recvs",
    "bad_xids", "req_u", "bklog_u", "read_segments", "write_segments", "reply_segments",
    "total_rdma_request", "total_rdma_reply", "pullup_copy", "fixup_copy", "hardway_register",
    "failed_marshal", "bad_reply", "nomsg_call", "mrs_recycled", "mrs_orphaned",
    "mrs_allocated", "local_inv_needed", "empty_sendctx_q", "reply_waits_for_send")
CREDIT = 256  # number by which sunrpc's congestion counter grows for each request
SWITCHES = pathlib.Path("/sys/kernel/sunrpc/xprt-switches")
DEBUGFS = pathlib.Path("/sys/kernel/debug/xprtrdma_rs")
CLIENTS = pathlib.Path("/sys/kernel/debug/sunrpc/rpc_clnt")


# Text in our log and our debugfs files about a connection that ended because rxe executed a
# registration again. rxe can do this on a machine that is too busy (Documentation/reliability.rst).
REPEATED = "the device has executed a registration again"


def section(where):
    """Returns the statistics of one mount, as lines."""
    text = pathlib.Path("/proc/self/mountstats").read_text()
    return text.split(f" mounted on {where} ", 1)[1].split("\ndevice ", 1)[0].splitlines()


def lines(where):
    """Returns a list of words for each transport of a mount: the words after `xprt:` in the mount's
    statistics."""
    return [line.split()[1:] for line in section(where) if line.lstrip().startswith("xprt:")]


def statistics(where):
    """Returns a dictionary for each transport of a mount, from the names in COLUMNS to the
    transport's numbers. The dictionary of a TCP transport has fewer entries."""
    return [dict(zip(COLUMNS, map(int, words[1:]), strict=False)) for words in lines(where)]


def operations(where):
    """Returns a dictionary from each operation to the numbers that follow its name in the
    statistics."""
    rows = [line.split(":", 1) for line in section(where)]
    start = next(i for i, row in enumerate(rows) if "per-op statistics" in row[0])
    return {row[0].strip(): [int(n) for n in row[1].split()]
            for row in rows[start + 1:] if len(row) == 2}


def directories():
    """Returns sunrpc's directories of RDMA transports in sysfs."""
    return sorted(SWITCHES.glob("switch-*/xprt-*-rdma"))


def info(directory):
    """Returns the numbers that sunrpc shows in sysfs about a transport."""
    pairs = (line.split("=", 1) for line in (directory / "xprt_info").read_text().splitlines()
             if "=" in line)
    return {name: int(value) for name, value in pairs}


def waiting_for_credits(granted):
    """Returns the number of calls that wait for a credit on the only transport. Returns 0 if one of
    the `granted` credits is free.
    """
    numbers = info(directories()[0])
    return numbers["sending_q_len"] if numbers["cur_cong"] == granted * CREDIT else 0


def waiting_for_replies(name):
    """Returns the number of calls of a procedure that were sent and have no reply."""
    tasks = "".join(file.read_text() for file in CLIENTS.glob("*/tasks"))
    return len(re.findall(f" {name} .* q:xprt_pending$", tasks, re.MULTILINE))


def states():
    """Returns the state words of every RDMA transport, such as CONNECTED."""
    return [(d / "xprt_state").read_text().split() for d in directories()]


def connected():
    """Returns whether any RDMA transport is connected."""
    return any("CONNECTED" in words for words in states())


def transports():
    """Returns this project's debugfs directories, one for each transport."""
    return [file.parent for file in DEBUGFS.glob("*/state")]


def numbers_of(file, name):
    """Returns the numbers in the line `name` of a debugfs file of this project's only transport."""
    return numbers_in(next(DEBUGFS.glob(f"*/{file}")), name)


def numbers_in(path, name):
    """Returns the numbers in the line that begins with `name`. The file must contain the line."""
    lines = path.read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}: "))
    return [int(number) for number in re.findall(r"\d+", line.partition(":")[2])]


def disconnects():
    """Returns why the last connections of the only transport ended: a cause and further
    observations for each connection.
    """
    return [(cause, details) for _, cause, details in ends(next(DEBUGFS.glob("*/state")))]


def ends(state):
    """Returns a tuple for each ended connection in a `state` file, the newest first: the
    connection's epoch (number), the cause of its end, and further observations. Connections that
    ended because rxe executed a registration again are left out."""
    found = re.findall(r"^disconnect: epoch (\d+), (.*), after \d+ ms(.*)$", state.read_text(),
                       re.MULTILINE)
    return [end for end in found if REPEATED not in end[2]]


def fenced():
    """Returns whether the connection of the only transport uses a fence before registrations."""
    state = next(DEBUGFS.glob("*/state")).read_text()
    return re.search("^registrations: behind a fence$", state, re.MULTILINE) is not None


def repeated(port):
    """Returns how many connections ended because rxe executed a registration again: one number for
    each transport that is connected to this port."""
    found = []
    for directory in sorted(transports(), key=lambda directory: int(directory.name)):
        if f":{port}\n" in (directory / "state").read_text():
            found += numbers_in(directory / "counters", "repeated_registration")
    return found


def force_disconnect():
    """Breaks every connection from this side.

    This project's client has a debugfs file that breaks a connection. The in-tree client drops a
    connection if the server's address is written to the transport's file in sysfs, even if the
    address has not changed.
    """
    if ENV.ours:
        switches = sorted(DEBUGFS.glob("*/disconnect"))
        if not switches:
            raise AssertionError(f"no switch {DEBUGFS}/*/disconnect")
        for switch in switches:
            switch.write_text("1")
        return
    for directory in directories():
        move(directory, (directory / "dstaddr").read_text().strip())


def move(directory, address):
    """Sets the address of a transport's server. The kernel then breaks the transport's
    connection."""
    wait.until(lambda: write_address(directory, address), ENV.patience(30),
               f"{address} written to {directory}/dstaddr")


def write_address(directory, address):
    """Tries once to write the server's address, and returns whether the write succeeded.

    The kernel waits for the transport's lock, and may never get the lock, because busy senders pass
    the lock to each other. So a child process, which can be killed, writes the address.
    """
    pid = os.fork()
    if not pid:
        try:
            (directory / "dstaddr").write_text(address)
        finally:
            os._exit(0)
    try:
        wait.until(lambda: os.waitpid(pid, os.WNOHANG)[0], 1, "address written")
    except wait.Timeout:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False
    return True


def wait_reconnected(mount, before, seconds=30):
    """Waits until the mount has made more than `before` connections."""
    wait.until(lambda: mount.connects() > before, ENV.patience(seconds),
               f"connected again (so far {before} times; states {states()})")


def wait_reconnected_by(mount, before, action, seconds=30):
    """Waits until a mount without load has made more than `before` connections. Until then, calls
    `action` repeatedly, so that the mount connects."""
    def connected():
        action()
        return mount.connects() > before

    wait.until(connected, ENV.patience(seconds), "connected again")


def wait_gone(seconds=20):
    """Waits until no RDMA transport exists."""
    wait.until(lambda: not directories(), ENV.patience(seconds), "no RDMA transport left")
