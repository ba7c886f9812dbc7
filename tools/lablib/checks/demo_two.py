# SPDX-License-Identifier: GPL-2.0
"""`make demo-v2`: version two of RPC-over-RDMA, seen in the machines and on the cable.

The program in the client machine is selftests/demo_two.  It talks to the responder of the selftests
first, and then to a server with our module.
"""

from ..base.paths import REPO
from ..base.ui import LabError, say, step
from ..machine.session import Plan
from . import cable, demo

SECONDS = 1800
# The server's transport, what it is called, and where its capture and the messages in it are.
PEERS = {"intree": ("through the responder", "demo-v2"),
         "ours": ("to our server", "demo-v2-server")}
# Without these the run did not show what it is for.
KINDS = ("call", "reply", "callback call", "callback reply", "long call", "with Read chunks",
         "with Write chunks", "with a Reply chunk", "RPCSEC_GSS call")


def run(spec):
    """The whole demonstration; the exit status."""
    problems = []
    for serving, (what, name) in PEERS.items():
        say(f"version two {what}:")
        problems += [f"{what}: {problem}" for problem in with_peer(spec, serving, name)]
    return demo.judge(problems)


def with_peer(spec, serving, name):
    """The demonstration with one peer; what is wrong."""
    capture, messages = (REPO / f"build/{name}.{kind}" for kind in ("pcap", "messages"))
    capture.parent.mkdir(exist_ok=True)
    for old in (capture, messages):
        old.unlink(missing_ok=True)
    plan = Plan(spec=spec, serving=serving, load=False, timeout=SECONDS, pcap=str(capture))
    return demo.show(plan, "demo_two") + seen(capture, messages)


def seen(capture, messages):
    """What is wrong on the cable; writes the messages down and sums them up."""
    try:
        with step("decoding the capture"):
            found, others = cable.version_two_of(capture)
    except LabError as error:
        return [str(error)]
    messages.write_text("".join(f"{line}\n" for line in found.lines()))
    say(f"capture: {capture.relative_to(REPO)}, its messages: {messages.relative_to(REPO)}")
    say(f"capture: {found}")
    problems = [f"capture: {complaint}" for complaint in found.complaints]
    problems += [f"capture: no message: {kind}" for kind in KINDS if not found.counts[kind]]
    if others:
        problems.append(f"capture: {others} connections that begin in another version")
    if found.unanswered:
        problems.append(f"capture: {found.unanswered} calls without an answer")
    return problems
