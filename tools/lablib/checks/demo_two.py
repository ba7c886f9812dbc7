# SPDX-License-Identifier: GPL-2.0
"""Implements `make demo-v2`: demonstrates version two of RPC-over-RDMA between virtual machines,
and captures the messages.

The program in the client machine is selftests/demo_two. It first connects to the responder of the
selftests, and then to a server with our module.
"""

from ..base.paths import REPO
from ..base.ui import LabError, say, step
from ..machine.session import Plan
from . import cable, demo

SECONDS = 1800
# For each transport of the server: its name in messages, the name of the files with the capture and
# the decoded messages, and the number of bytes of the longest message.
PEERS = {"intree": ("through the responder", "demo-v2", 4096),
         "ours": ("to our server", "demo-v2-server", 8192)}
# Kinds of messages that the capture must contain.
KINDS = ("call", "reply", "callback call", "callback reply", "long call", "with Read chunks",
         "with Write chunks", "with a Reply chunk", "RPCSEC_GSS call")


def run(spec):
    """Runs the whole demonstration. Returns the exit status."""
    problems = []
    for serving, (what, name, longest) in PEERS.items():
        say(f"version two {what}:")
        problems += [f"{what}: {problem}" for problem in with_peer(spec, serving, name, longest)]
    return demo.judge(problems)


def with_peer(spec, serving, name, longest):
    """Runs the demonstration with one peer. Returns a list of the problems."""
    capture, messages = (REPO / f"build/{name}.{kind}" for kind in ("pcap", "messages"))
    capture.parent.mkdir(exist_ok=True)
    for old in (capture, messages):
        old.unlink(missing_ok=True)
    plan = Plan(spec=spec, serving=serving, load=False, timeout=SECONDS, pcap=str(capture))
    return demo.show(plan, "demo_two") + seen(capture, messages, longest)


def seen(capture, messages, longest):
    """Writes the messages of the capture to a file, and prints a summary. Returns a list of the
    problems."""
    try:
        with step("decoding the capture"):
            found, others = cable.version_two_of(capture, longest)
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
