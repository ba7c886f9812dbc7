# SPDX-License-Identifier: GPL-2.0
"""The part of the demonstration that runs in the client: copies files in both directions, compares
them, and counts operations.

    demo.py OPTIONS CLIENT...   prints JSON, progress goes to standard error
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading

from . import count, transport
from .remote import Remote

FILES, LARGE_MIB = 200, 32
STATUS = pathlib.Path(__file__).resolve().parents[2] / "xprtrdma-status"
LOCAL = pathlib.Path("/tmp/demo")
# A program that runs on the server and reads the server's own file system. It prints the names and
# checksums of the files in a tree.
SUMS = 'cd "$0" && find . -type f -print0 | sort -z | xargs -0 sha256sum'


def make_tree(top, seed, large_mib=LARGE_MIB):
    """Makes files whose sizes are close to the important limits, and one large file."""
    chance = random.Random(seed)
    borders = (0, 1, 3, 512, 1000, 4095, 4096, 4097, 8192, 65536)
    for number in range(FILES):
        path = top / f"d{number % 10}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.choice(borders) + chance.randrange(100)))
    block = chance.randbytes(1 << 20)
    with open(top / "large", "wb") as large:
        for number in range(large_mib):
            large.write(number.to_bytes(8, "big") + block[8:])


def local_sums(top):
    """Returns the checksums of a tree as this machine reads it."""
    found = {}
    for path in sorted(p for p in top.rglob("*") if p.is_file()):
        with open(path, "rb") as data:
            found[str(path.relative_to(top))] = hashlib.file_digest(data, "sha256").hexdigest()
    return found


def server_sums(directory):
    """Returns the checksums of a tree on the server's own file system."""
    status, text = Remote("server").call(["sh", "-c", SUMS, directory])
    if status:
        raise RuntimeError(f"on the server: {text.decode()}")
    lines = [line.split("  ./", 1) for line in text.decode().splitlines()]
    return {name: checksum for checksum, name in lines}


def forget_caches():
    """Drops cached data, so that the next read is sent to the server."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def say(text):
    print(f"    {text}", file=sys.stderr, flush=True)


def copy_both_ways(mount, exported):
    """Copies files to the server and back. Compares every copy on both sides."""
    there, back = pathlib.Path(mount) / "demo", LOCAL / "back"
    say("copying to the server")
    shutil.copytree(LOCAL / "tree", there)
    forget_caches()
    say("copying back")
    shutil.copytree(there, back)
    expected = local_sums(LOCAL / "tree")
    equal = {"server's own file system": server_sums(f"{exported}/demo") == expected,
             "read back by the client": local_sums(back) == expected}
    shutil.rmtree(back)
    shutil.rmtree(there)
    return {"files": len(expected), "equal": equal}


def kernel_lines():
    """Returns the messages of the transports in the kernel log."""
    text = subprocess.run(["dmesg"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [line for line in text.splitlines() if ("rdma" in line.lower() and "xprt" in line)
            or "rpcrdma" in line]


def status(client, mount):
    """Returns the output of `xprtrdma-status` for the mount while data are written."""
    told = threading.Event()

    def write():
        with open(pathlib.Path(mount) / "written", "wb", buffering=0) as file:
            while not told.is_set():
                file.write(bytes(4096))
                os.fsync(file)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        more = ["--latency"] if client == "ours" else []
        return subprocess.run([STATUS, *more, mount], stdout=subprocess.PIPE, text=True,
                              timeout=transport.SECONDS, check=True).stdout
    finally:
        told.set()
        writer.join()


def demonstrate(client, options, probe):
    """Runs the whole demonstration with one client, from loading to unloading."""
    print(f"  client: {client}", file=sys.stderr, flush=True)
    before = len(kernel_lines())
    with transport.loaded(client), transport.mounted(options) as mount:
        result = copy_both_ways(mount, os.environ["NFS_EXPORT_MEM"])
        result["mount"] = next(
            line for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()
            if line.split()[1] == mount)
        result["status"] = status(client, mount)
        result["counts"] = count.measure(mount, probe)
    result["log"] = kernel_lines()[before:]
    return result


def main(options, clients):
    make_tree(LOCAL / "tree", seed=1)
    report = {}
    with count.Probe() as probe:
        for client in clients:
            report[client] = demonstrate(client, options, probe)
    print(json.dumps(report))
    return 0 if all(all(r["equal"].values()) for r in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
