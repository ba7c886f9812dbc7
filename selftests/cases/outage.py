# SPDX-License-Identifier: GPL-2.0
"""Tests of the log lines and debugfs files that an administrator reads while a server is
unreachable. Each line or file names its connection."""

import os
import pathlib
import re

from lib import faults, module, wait, xprt
from lib.case import ENV, case, check, equal
from lib.env import PORT
from lib.workers import Worker

ATTEMPTS = 5
SUSPICION_SECONDS = 150  # time for two connection attempts of a minute each


def state(number):
    """Returns a dictionary from the name of each line in a transport's `state` file to the value in
    that line. If several lines have the same name, the last line counts."""
    text = (xprt.DEBUGFS / str(number) / "state").read_text()
    return dict(line.partition(": ")[::2] for line in text.splitlines())


def touch(_, where):
    """Makes a call that waits for the server."""
    os.statvfs(where)


def lines(t, *words):
    return [line for line in t.log.read() if all(word in line for word in words)]


# covers: While a server is unreachable, the log has one line for each reason, and not one line for
# each attempt. When the connection works again, one more line reports this.
@case(versions=("3",), clients=("ours",), seconds=90)
def a_server_that_stays_away_costs_few_lines(t):
    mount = t.mount()
    os.statvfs(mount.where)
    number = xprt.transports()[0].name
    t.defer(faults.start_nfsd, t.server)
    t.log.mark()
    faults.stop_nfsd(t.server)
    user = Worker(touch, mount.where)
    wait.until(lambda: int(state(number)["failures in a row"]) > ATTEMPTS, ENV.patience(40),
               f"{ATTEMPTS} failed attempts")
    found = lines(t, "cannot be connected")
    reasons = [line.partition("cannot be connected: ")[2].partition(" (")[0] for line in found]
    check(found, "no line")
    equal(len(set(reasons)), len(reasons), f"reasons of the lines {found}")
    last = state(number)["last failure"]
    check(last.partition(" (")[0] in reasons, f"{last}; {found}")
    faults.start_nfsd(t.server)
    faults.end_grace(t.server)
    line = t.log.expect(f"xprt-{number}-rdma: {ENV.server}:{PORT} connected after",
                        seconds=ENV.patience(40))
    failed = re.search(r"after (\d+) failed attempts, \d+\.\d s:", line)
    check(failed and int(failed[1]) >= ATTEMPTS, line)
    user.join(ENV.patience(20))


# covers: Log lines and debugfs files name the connection that they describe, with the name that
# other tools use.
@case(versions=("3",), clients=("ours",))
def every_connection_can_be_told_from_the_others(t):
    t.log.mark()
    mount = t.mount("nconnect=2")
    wait.until(lambda: os.statvfs(mount.where) and
               all(x["connect_count"] for x in mount.xprts()), ENV.patience(10),
               "both are connected")
    found = lines(t, " connected: ")
    equal(len(found), 2, f"lines: {found}")
    netns = os.stat("/proc/self/ns/net").st_ino
    for directory in xprt.directories():
        name = directory.name
        port = xprt.info(directory)["src_port"]
        local = f"{(directory / 'srcaddr').read_text().strip()}:{port}"
        shown = state(name.split("-")[1])
        for key, expected in (("transport", name), ("netns", str(netns)), ("local", local),
                              ("peer", f"{ENV.server}:{PORT}"),
                              ("device", f"{faults.device()}, port 1")):
            equal(shown.get(key), expected, f"{name}: {key}")
        words = (f"{name}: {ENV.server}:{PORT} connected: device {faults.device()} port 1, "
                 f"from {local}, inline ")
        check(any(words in line for line in found), f"no {words!r} in {found}")
        t.log.mark()
        (xprt.DEBUGFS / name.split("-")[1] / "disconnect").write_text("1")
        t.log.expect(f"{name}: {ENV.server}:{PORT} disconnected: forced")


# covers: If a device's port is active but no answer arrives, the log names the device and a remedy.
@case(versions=("3",), clients=("ours",), full_only=True, full_seconds=600)
def a_device_without_answers_is_suspected(t):
    mount = t.mount()
    os.statvfs(mount.where)
    t.defer(faults.speak, t.server)
    faults.silence(t.server)
    t.log.mark()
    xprt.force_disconnect()
    user = Worker(touch, mount.where)
    line = t.log.expect(f"device {faults.device()} gets no answers, though its port 1 is active",
                        seconds=ENV.patience(SUSPICION_SECONDS))
    t.note(line)
    equal(len(lines(t, "cannot be connected")), 1 + len(lines(t, "attempt 2 in")), "lines")
    faults.speak(t.server)
    user.join(ENV.patience(90))


# covers: A debugfs file shows the values of the parameters that are in effect, including changes by
# sysctl and the results of rounding.
@case(versions=None, clients=("ours",), loaded=False)
def parameters_can_be_read_as_they_act(t):
    place = xprt.DEBUGFS / "parameters"
    given = {"slots": 64, "inline_size": 5000, "region_pages": 33, "idle_timeout": 77, "strict": 1}
    module.insmod(" ".join(f"{name}={value}" for name, value in given.items()))

    def shown():
        return dict(line.split(": ") for line in place.read_text().splitlines())

    expected = {"slots": "64", "inline_size": "4096 out, 4096 in",
                "region_pages": f"33, at most {1 << 20} bytes in a request",
                "idle_timeout": "77", "strict": "1", "rdma_version": "1",
                "registration_fence": "0",
                "remote_invalidation": "auto", "rails": "off", "rail_servers": "none"}
    equal(shown(), expected, "parameters")
    known = {file.name for file in pathlib.Path(f"/sys/module/{module.name()}").glob(
        "parameters/*")}
    check(known <= expected.keys(), f"{known} are in /sys/module")
    sysctls = pathlib.Path("/proc/sys/sunrpc")
    for name, way in (("rdma_max_inline_read", "in"), ("rdma_max_inline_write", "out")):
        equal((sysctls / name).read_text().strip(), "4096", f"first value of {name}")
        for value, acts in ((5000, 4096), (1024, 1024), (2047, 1024), (65536, 65536)):
            (sysctls / name).write_text(str(value))
            equal((sysctls / name).read_text().strip(), str(acts), f"{name} after {value}")
            check(f"{acts} {way}" in shown()["inline_size"].split(", "), f"{name} after {value}")
    (sysctls / "rdma_slot_table_entries").write_text("33")
    equal(shown()["slots"], "33", "slots")
    (sysctls / "rdma_rails").write_text(f"nosuch0,{faults.device()}\n192.0.2.99")
    (sysctls / "rdma_rail_servers").write_text(f"{ENV.server}=198.51.100.9")
    equal(shown()["rails"], f"nosuch0,{faults.device()} 192.0.2.99", "rails")
    t.log.mark()
    mount = t.mount(version="3")
    os.statvfs(mount.where)
    shown_by_mount = state(xprt.transports()[0].name)
    for key, text in (("slots", "33"), ("idle timeout", "77 s")):
        equal(shown_by_mount[key], text, f"{key} of a mount")
    # Some entries of the settings for rails match no device, address or rail of this machine. The
    # log names these entries. The log also says that there is no redundancy.
    for said in ("rails: nosuch0 is not here", "rails: 192.0.2.99 is not here",
                 "rail_servers: no rail leads to 198.51.100.9",
                 "only one rail to this server: no redundancy"):
        t.log.expect(said)
    mount.remove()
    module.unload()
    check(not place.exists(), "the file is left")
