# SPDX-License-Identifier: GPL-2.0
"""The verdict of xprtrdma-status names the problem of a mount."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

from lib import faults, xprt
from lib.buffers import Buffer
from lib.case import ENV, case, check, equal, wait
from lib.env import REPO
from lib.workers import Worker, together

COMMAND = REPO / "tools/xprtrdma-status"
BLOCK = 4096
CREDITS = 4
THREADS = 20


def run(*argv):
    """Returns exit status and output of the command."""
    done = subprocess.run((COMMAND, *argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=ENV.patience(60), check=False)
    return done.returncode, done.stdout


def told(mount, *argv):
    """Returns the exit status of xprtrdma-status, and its report about a mount."""
    code, text = run("--json", *argv, mount.where)
    one, = json.loads(text)["mounts"]
    return code, one


# covers: xprtrdma-status reports what a working mount does. It shows the connections, and how long
# each stage of a call's processing takes.
@case(versions=("3", "4.2"), seconds=40, slow=True)
def a_mount_that_is_well(t):
    code, text = run()
    equal((code, "no NFS mount over RDMA" in text), (3, True), f"without a mount: {text}")
    mount = t.mount("noac,nconnect=2")
    t.directory(mount)
    file = mount.path("case/file")[0]
    fd = os.open(file, os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    t.defer(os.close, fd)
    buffer, going = Buffer(BLOCK), [True]

    def work(_):
        while going[0]:
            buffer.write(fd, bytes(BLOCK), 0)

    def look():
        options = ("--latency",) if ENV.ours else ()
        try:
            found.append(told(mount, *options))
            found.append(run(*options, mount.where))
        finally:
            going[0] = False

    found = []
    together(2, lambda number: look() if number else work(number))
    (code, one), (_, text) = found
    t.note(text)
    equal((code, one["level"]), (0, "ok"), one["verdict"])
    check("calls a second" in one["verdict"][0], one["verdict"])
    equal([c["connected"] for c in one["connections"]], [True, True], "connected")
    equal([c["xprt"] for c in one["connections"]],
          [int(d.name.split("-")[1]) for d in xprt.directories()], "numbers of the connections")
    equal([c["statistics"]["connect_count"] for c in one["connections"]], [1, 1], "connections")
    check(one["traffic"]["calls"] > 0, one["traffic"])
    code, text = run("--prometheus", "-", "--interval", "0")
    up = re.findall(r"^xprtrdma_connected\{.*\} 1$", text, re.MULTILINE)
    equal((code, len(up)), (0, 2), text)
    equal("xprtrdma_events_total" in text, ENV.ours, text)
    if ENV.ours:
        for connected in one["connections"]:
            stages = connected["latency"]
            equal(list(stages), ["wait", "register", "answer", "complete"], "stages")
            counted = [times["calls"] for times in stages.values()]
            # A call may complete while the table is read, so the counts of the stages may differ
            # slightly.
            check(min(counted) > 0 and max(counted) - min(counted) <= 4, stages)
            check(all(sum(times["buckets"]) == times["calls"] for times in stages.values()), stages)
            # Each connection has only one call at a time. So the stage "answer", in which a call
            # waits for its reply, takes the most time.
            check(stages["answer"]["median_below_us"] > stages["complete"]["median_below_us"],
                  stages)
        equal((xprt.DEBUGFS / "measure_latency").read_text(), "0\n", "measured afterwards")
        equal(told(mount)[1]["connections"][0]["latency"], {}, "counted while it is off")
        equal(one["connections"][0]["details"]["device"], f"{faults.device()}, port 1", "device")


# covers: xprtrdma-status reports a server that has received a call and does not answer it.
@case(versions=("3",), seconds=60)
def a_server_that_does_not_answer(t):
    mount = t.mount("noac", export=ENV.disk)
    top = t.directory(mount)
    t.server.call("create", top.there, 1, "f")
    with faults.frozen(t.server):
        user = Worker(lambda _: os.chmod(f"{top.here}/f0", 0o600))
        wait.until(lambda: xprt.info(xprt.directories()[0])["pending_q_len"], ENV.patience(10),
                   "a call that waits")
        code, one = told(mount)
    t.note(str(one["verdict"]))
    equal((code, one["level"]), (1, "warning"), one["verdict"])
    check("1 calls are with the server, and it has answered none" in one["verdict"][0],
          one["verdict"])
    user.join(ENV.patience(20))
    equal(told(mount)[0], 0, "exit status when it has answered")


# covers: xprtrdma-status reports that the server is gone, and why. It reports no error when the
# server is back.
@case(versions=("3",), seconds=100)
def a_dead_server(t):
    mount = t.mount("noac")
    t.defer(faults.start_nfsd, t.server)
    faults.stop_nfsd(t.server)
    user = Worker(lambda _: os.statvfs(mount.where))

    def named():
        sentence = told(mount, "--interval", "0")[1]["verdict"][0]
        return "no connection" in sentence and (not ENV.ours or "in a row failed" in sentence)

    wait.until(named, ENV.patience(40), "the verdict of a server that is gone")
    code, text = run(mount.where)
    t.note(text)
    equal((code, "ERROR" in text), (2, True), text)
    check(re.search(r"no connection; [1-9]\d* calls of the mount are under way", text), text)
    check("the last one: refused" in text or not ENV.ours, text)
    faults.start_nfsd(t.server)
    faults.end_grace(t.server)
    user.join(ENV.patience(60))
    equal(told(mount)[0], 0, "exit status when it is back")


# covers: The link of this host is down. xprtrdma-status reports this even before the connection
# ends, because the device says so.
@case(versions=("3",), clients=("ours",), seconds=120)
def a_cable_that_was_pulled_out(t):
    mount = t.mount("noac")
    os.statvfs(mount.where)
    found = []

    def named():
        found[:] = told(mount)
        return found[1]["verdict"][0].startswith("this host's RDMA device told: port down")

    user = None
    try:
        faults.lab("client", "unplug")
        user = Worker(lambda _: os.statvfs(mount.where))
        wait.until(named, ENV.patience(30), "the verdict of a link that is down")
    finally:
        faults.lab("client", "plug")
        # rxe may be unable to send after its link was down, so the RDMA device is created again.
        faults.remove_client_device()
        faults.add_client_device()
        if user:
            user.join(ENV.patience(60))
    code, one = found
    t.note(str(one["verdict"]))
    check((code, one["level"]) in ((1, "warning"), (2, "error")), one["verdict"])
    check("told" not in str(told(mount)[1]["verdict"]), "it is told when the link is there again")


# covers: xprtrdma-status reports a connection that has more calls to send than it has credits from
# the server.
@case(versions=("3",), seconds=100)
def a_starved_connection(t):
    faults.grant(t, CREDITS)
    mount = t.mount("noac")
    top = t.directory(mount)
    t.server.call("create", top.there, THREADS, "f")
    going, found = [True], []

    def change(number):
        while going[0]:
            os.chmod(f"{top.here}/f{number}", 0o600)

    def look():
        def starved():
            found[:] = told(mount)
            return "starved of credits" in found[1]["verdict"][0]

        try:
            wait.until(starved, ENV.patience(20), "the verdict of a starved connection")
        finally:
            going[0] = False

    together(THREADS + 1, lambda number: look() if number == THREADS else change(number))
    code, one = found
    t.note(str(one["verdict"]))
    equal((code, one["level"]), (1, "warning"), one["verdict"])
    check(f"grants {CREDITS} of" in one["verdict"][0], one["verdict"])
    mount.remove()


# covers: With --watch xprtrdma-status prints reports until it is interrupted.
@case(versions=("4.2",), seconds=60)
def watching_goes_on_until_it_is_interrupted(t):
    mount = t.mount()
    argv = (COMMAND, "--watch", "--json", "--interval", "0.1", mount.where)
    command = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    t.defer(command.communicate)
    t.defer(command.kill)
    reports = iter(command.stdout or ())
    for _ in range(3):
        one, = json.loads(next(reports))["mounts"]
        equal((one["where"], one["level"]), (mount.where, "ok"), one["verdict"])
    command.send_signal(signal.SIGINT)
    equal(command.wait(ENV.patience(20)), 130, "exit status")


# covers: xprtrdma-status collects all data in one file. The same report can be made from this file
# on another machine.
@case(versions=("4.2",), seconds=40)
def a_file_for_a_report(t):
    mount = t.mount()
    with tempfile.TemporaryDirectory() as where:
        code, text = run("--collect", f"{where}/report.tar.gz")
        equal((code, "look through it" in text), (0, True), text)
        subprocess.run(["tar", "-xzf", f"{where}/report.tar.gz", "-C", where],
                       timeout=ENV.patience(20), check=True)
        top = pathlib.Path(where) / "xprtrdma-status"
        code, text = run("--json", "--from", str(top), mount.where)
        one, = json.loads(text)["mounts"]
        equal((code, one["connections"][0]["connected"]), (0, True), text)
        check("rdma" in (top / "log").read_text().lower(), "no line of the log")
    code, text = run("--collect", "/nowhere/report.tar.gz")
    equal((code, "/nowhere/report.tar.gz" in text), (3, True), text)
