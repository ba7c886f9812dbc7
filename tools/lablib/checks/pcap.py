# SPDX-License-Identifier: GPL-2.0
"""Reads a capture with tshark, and decides by the protocol layer which errors count:

- In the layers infiniband and rpcordma, every error counts, except errors of rpcordma in messages
  of version two. tshark cannot decode these messages, so the module `version_two` checks them.
- In the layers above them, an error counts only if a capture of the in-tree client is given and
  does not contain this error. The reason is that tshark's NFS dissector reports much of the correct
  NFS/RDMA traffic of any client as malformed.
"""

import collections
import pathlib
import subprocess

from ..artefacts import root
from ..base import chroot
from ..base.ui import LabError, say

MESSAGES = "rpcordma"
OURS = ("infiniband", MESSAGES)
SECONDS = 900
SEVERITY_ERROR = 8388608


def tshark(path, *options, fields):
    """Returns the fields of a capture's packets, in rows."""
    path = pathlib.Path(path).resolve()
    if not path.exists():
        raise LabError(f"no capture {path}")
    # RoCE over IPv6 has no UDP checksum, because RoCE packets contain another checksum.
    argv = ["tshark", "-r", f"/lab/in/{path.name}", "-o", "udp.ignore_ipv6_zero_checksum:TRUE",
            *options, "-T", "fields"]
    argv += [word for field in fields for word in ("-e", field)]
    try:
        done = subprocess.run(
            chroot.command(root.path(), argv, [(path.parent, "/lab/in")]),
            capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"tshark: no end after {SECONDS} s") from None
    if done.returncode:
        raise LabError(f"tshark: {done.stderr.strip()[-500:]}")
    return [line.split("\t") for line in done.stdout.split("\n") if line]


def findings(path, version_two=()):
    """Returns how many times each error occurs in the frames of a capture. An error is a pair
    (layer, message).

    Ignores errors of RPC-over-RDMA in frames whose number is in `version_two`.
    """
    lines = tshark(path, "-Y", f"_ws.malformed || _ws.expert.severity == {SEVERITY_ERROR}",
                   fields=("frame.number", "frame.protocols", "_ws.expert.message"))
    found = collections.Counter()
    for frame, protocols, message in lines:
        layers = [p for p in protocols.split(":") if not p.startswith("_ws")]
        layer = layers[-1] if layers else "?"
        if layer != MESSAGES or int(frame) not in version_two:
            found[layer, message] += 1
    return found


def judge(capture, reference=None, version_two=()):
    """Prints the findings. Returns 1 if one of them is an error of our client."""
    found = findings(capture, version_two)
    excused = findings(reference) if reference else {}
    wrong = 0
    for (layer, message), count in sorted(found.items()):
        known = layer not in OURS and (not reference or (layer, message) in excused)
        wrong += not known
        say(f"{'excused' if known else 'WRONG'}: {count} frames, {layer}: {message}")
    print(f"{len(found)} kinds of errors, {wrong} not excused")
    return 1 if wrong else 0
