# SPDX-License-Identifier: GPL-2.0
"""What `make demo` and `make count` print."""

import json

from . import wire
from .session import Plan, Session
from .ui import LabError, say

GUEST = "tools/lablib/guest"
OPERATIONS_SECONDS = 600
COLUMNS = (("work_requests", "work requests"), ("posts", "post-send calls"),
           ("completions", "completions"), ("recv_posts", "post-recv calls"))


def options(version):
    return f"vers={version},rdma,port=20049"


def in_client(spec, client, program, version):
    """Run a reporting program in the client: (its JSON, the session)."""
    clients = ["ours", "intree"] if client == "both" else [client]
    plan = Plan(client="intree" if client == "intree" else "ours", spec=spec, load=False,
                timeout=OPERATIONS_SECONDS)
    session, output, status = Session(plan), [], None

    def sink(kind, data):
        if kind == wire.OUT:
            output.append(data)
        else:
            say(data.decode(errors="replace").rstrip())

    with session:
        status = session.run(["python3", "-B", f"{GUEST}/{program}", options(version),
                              *clients], sink)
    try:
        found = json.loads(b"".join(output))
    except ValueError:
        raise LabError(f"{program}: exit status {status}, no report") from None
    return found, session, status


def count_table(results):
    """Counts per RPC, the clients side by side."""
    clients = list(results)
    width = 14
    lines = ["per RPC".ljust(14) + "".join(
        title.center(width * len(clients)) for _, title in COLUMNS)]
    names = {"ours": "ours", "intree": "in-tree"}
    lines.append(" " * 14 + "".join(names[c].rjust(width - 2).ljust(width)
                                    for _ in COLUMNS for c in clients))
    for operation in results[clients[0]]:
        cells = (f"{results[c][operation][key]:.2f}".rjust(width - 2).ljust(width)
                 for key, _ in COLUMNS for c in clients)
        lines.append(operation.ljust(14) + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def count(spec, client, version):
    """The table alone."""
    found, session, status = in_client(spec, client, "count_clients.py", version)
    print(count_table(found))
    return 1 if status or session.complaints else 0


def demo(spec, client, version):
    """The whole demonstration as a page of text."""
    found, session, status = in_client(spec, client, "demo.py", version)
    package = session.stock.package
    image = [f"{name} {package['version']}\n             sha256 {checksum}"
             for name, checksum in package["packages"].items()
             if "image" in name or "binary" in name or "modules" in name]
    print("\nNFS over RDMA, client in Rust" if "ours" in found else "\nNFS over RDMA")
    print("=" * 78)
    print(f"kernel       {session.stock.release}, unmodified, in both machines")
    print("packages     " + "\n             ".join(image))
    if session.module:
        print(f"module       {session.module}")
    for name, one in found.items():
        print(f"\n{'our client' if name == 'ours' else 'in-tree client, same run'}")
        print(f"  mount      {one['mount']}")
        for line in one["log"]:
            print(f"  log        {line}")
        print(f"  copied     {one['files']} files both ways: " + ", ".join(
            f"{what} {seconds:.1f} s" for what, seconds in one["seconds"].items()))
        for what, equal in one["equal"].items():
            print(f"  checksums  {what}: {'equal' if equal else 'DIFFERENT'}")
    print("\n" + count_table({name: one["counts"] for name, one in found.items()}))
    equal = all(all(one["equal"].values()) for one in found.values())
    good = equal and not status and not session.complaints
    print(f"\n{'Everything as it should be.' if good else 'FAILED, see above.'}")
    return 0 if good else 1
