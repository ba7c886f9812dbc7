# SPDX-License-Identifier: GPL-2.0
"""Tests that each command of the tutorial works as the page shows it."""

import re
import subprocess

from lib import faults, module, wait
from lib.case import ENV, Skip, case, check
from lib.env import REPO

PAGE = REPO / "Documentation/tutorial.rst"
TYPED = re.compile(r"^  (server|client)# (.*)$", re.MULTILINE)
# The beginnings of commands that are not run, because the lab's machines have no package archive
# and no compiler.
ELSEWHERE = ("apt-get ", "make ")
RESTART = "systemctl restart nfs-server"
# The command that runs instead of the tutorial's command RESTART, because the lab's machines have
# no init system.
BY_HAND = "exportfs -ra && rpc.nfsd 0 && rpc.nfsd 8"
# The exported directory. It is on a disk, because knfsd needs no fsid for a file system on a disk.
SERVED = "/exports/srv/try"
PREPARE = f"mkdir -p {faults.DISK}/try {SERVED} && mount --bind {faults.DISK}/try {SERVED}"
UNDO = (f"umount {SERVED} && rmdir {SERVED} && rm -rf {faults.DISK}/try && "
        "rm -f /etc/nfs.conf.d/rdma.conf")
RPING_PORT = ":7174 "


def commands():
    """Returns (machine, command) in the order of the page, except commands that cannot run here."""
    found = [(machine, BY_HAND if command == RESTART else command)
             for machine, command in TYPED.findall(PAGE.read_text())
             if not command.startswith(ELSEWHERE)]
    check(len(found) > 20, f"{len(found)} commands in the tutorial")
    return found


def here(command):
    """Runs a command on this machine; returns its output."""
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=ENV.patience(120), check=False, cwd=REPO)
    check(done.returncode == 0, f"client# {command}: {done.returncode}: {done.stdout}")
    return done.stdout


def listens(server, port):
    return port in server.run("rdma", "resource", "show", "cm_id") + " "


def restored(server):
    """Restores the state that the server had before the tutorial."""
    faults.stop_nfsd(server)
    server.run("sh", "-c", UNDO)
    faults.start_nfsd(server)
    faults.end_grace(server)


# covers: Each command of the tutorial does what the tutorial says.
@case(versions=None, clients=("ours",), loaded=False, stock_only=True, seconds=240)
def tutorial_works_as_it_is_written(t):
    if ENV.provider != "rxe":
        raise Skip("the tutorial makes devices of rxe")
    t.defer(restored, t.server)
    t.server.run("sh", "-c", PREPARE)
    faults.stop_nfsd(t.server)
    faults.remove_server_device(t.server)
    faults.remove_client_device()
    waiting, said = None, {}
    for machine, command in commands():
        if command.startswith("rmmod"):
            wait.until(lambda: not module.references(), ENV.patience(module.GONE_SECONDS),
                       "no user of the module")
        if machine == "client":
            said[command] = here(command)
            t.note(f"client# {command}\n{said[command]}")
        elif command.endswith(" &"):
            helper = t.another_server()
            waiting = helper, helper.send("run", ["sh", "-c", command.removesuffix(" &")])
            wait.until(lambda: listens(t.server, RPING_PORT), ENV.patience(20), "rping listens")
            continue
        else:
            t.note(f"server# {command}\n{t.server.run('sh', '-c', command)}")
        if waiting:
            helper, number = waiting
            status, text = helper.take(number)
            check(status == 0, f"server# rping: {text}")
            waiting = None
    text = "".join(said.values())
    for word in ("ping data: rdma-ping-0", "connected: device rxe0 port 1", "  OK  ",
                 "64+0 records out"):
        check(word in text, f"no {word!r} in: {text}")
    check(not module.loaded(), "the module is still there")
