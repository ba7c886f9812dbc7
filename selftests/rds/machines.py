# SPDX-License-Identifier: GPL-2.0
"""Loads transports of RDS in both machines of the lab, and runs the agent of rds.py in one of them.
"""

import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tools"), str(HERE)]

from rds import TRANS_IB, TRANSPORT, Rds  # type: ignore[attr-defined]  # noqa: E402

from lablib.guest.remote import Remote  # noqa: E402

# The file of our module. LAB_MODULE names a module with a fault that was inserted on purpose.
# Without LAB_MODULE the module of the normal build is used.
MODULE = os.environ.get("LAB_MODULE") or f"/repo/build/{os.uname().release}-rds/rds_rdma_rs.ko"
LOAD = {"ours": ["insmod", MODULE], "intree": ["modprobe", "rds_rdma"]}
NAME = "rds_rdma_rs"
CONTROL = 18700
# Commands that control the packet filter. The filter drops only incoming packets of RDMA, because
# the commands for the other machine use the same link.
CUT = ("nft 'add table inet cut; add chain inet cut in { type filter hook input priority 0; }; "
       "add rule inet cut in udp dport 4791 drop'")
NFT = {"cut": CUT,
       "mend": "nft delete table inet cut",
       "lose": CUT.replace("drop'", "numgen random mod 1000 < 3 counter drop'"),
       "lost": "nft list table inet cut | sed -n 's/.*packets \\([0-9]*\\).*/\\1/p'"}
# The debug kernel has no nft, so tc is used there. A rule of tc also drops packets that carry the
# test's commands to the other machine. So tc is used only to lose some packets, not to cut the
# link.
TC = {"mend": "tc qdisc del dev eth0 root",
      "lose": "tc qdisc replace dev eth0 root netem loss 0.3%",
      "lost": "tc -s qdisc show dev eth0 | sed -n 's/.*dropped \\([0-9]*\\).*/\\1/p'"}
PATIENCE = 120
PARENT = pathlib.Path("/usr/lib/modules")
ALIAS = pathlib.Path("/etc/modprobe.d/rds-local.conf")


def here(*argv):
    """Runs a command on this machine."""
    subprocess.run(argv, check=True)


def there(*argv):
    """Runs a command on the other machine."""
    status, output = Remote("server").call(argv)
    if status:
        sys.exit(f"on the server {' '.join(argv)}: {output.decode(errors='replace')}")


def own_address(peer):
    """Returns the address from which this machine talks to the peer."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return probe.getsockname()[0]


def of_link():
    """Returns the options of rds.py with commands that cut the link or lose packets."""
    known = subprocess.run(["modprobe", "-q", "nf_tables"], check=False).returncode == 0
    return [word for name, command in (NFT if known else TC).items()
            for word in (f"--{name}", command)]


def wait_for(agent):
    """Waits until the agent accepts connections. `agent` is the agent's address."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(agent, 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def start_there():
    """Starts the agent on the other machine, and waits until the agent accepts connections. Returns
    the agent's address."""
    agent = f"{HERE}/rds.py agent"
    there("sh", "-c", f"nohup {agent} > /dev/null 2>&1 & echo $! > /run/rds-agent")
    address = (os.environ["NFS_SERVER"], CONTROL)
    wait_for(address)
    return address


def stop_there():
    """Ends the agent on the other machine."""
    there("sh", "-c", "kill $(cat /run/rds-agent)")


def load_on_request():
    """Installs our module as an administrator does, so that RDS loads the module when a program
    requests RDMA.

    Returns the modules that RDS has loaded. Removes the installation afterwards.
    """
    updates = PARENT / os.uname().release / "updates"
    here("mount", "-t", "tmpfs", "tmpfs", PARENT)
    try:
        updates.mkdir(parents=True)
        shutil.copy(MODULE, updates)
        here("depmod")
        ALIAS.write_text(f"alias rds_rdma {NAME}\n")
        program = Rds()
        program.setopt(TRANSPORT, struct.pack("@i", TRANS_IB))
        found = [name for name in (NAME, "rds_rdma") if pathlib.Path("/sys/module", name).is_dir()]
        program.close()
        return found
    finally:
        ALIAS.unlink(missing_ok=True)
        here("umount", PARENT)
