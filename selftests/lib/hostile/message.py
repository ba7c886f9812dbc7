# SPDX-License-Identifier: GPL-2.0
"""Transport messages of both versions. They are encoded and decoded by `tools/host/xdr_oracle.py`,
which is independent of the module's code."""

import dataclasses
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools/host"))

import xdr_oracle

Malformed = xdr_oracle.Malformed
GRANT = 32
CALL, REPLY = 0, 1
PAD = b"\0\0\0"


class Segment(tuple):
    """A segment of memory: handle, length and offset."""

    handle = property(lambda self: self[0])
    length = property(lambda self: self[1])
    offset = property(lambda self: self[2])

    def but(self, handle=None, length=None, offset=None):
        """Returns a copy of the segment with some of its fields changed."""
        return Segment(old if new is None else new
                       for old, new in zip(self, (handle, length, offset), strict=True))


def word(*numbers):
    """Encodes numbers as XDR."""
    return struct.pack(f">{len(numbers)}I", *numbers)


def numbers(octets, at, count=1):
    """Decodes numbers from XDR. Returns fewer numbers than requested if there are too few bytes."""
    count = min(count, max(0, len(octets) - at) // 4)
    return struct.unpack(f">{count}I", octets[at:at + 4 * count])


def padded(octets):
    return octets + PAD[:-len(octets) % 4]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The format of the messages of one version: the XDR of the header, and the names of the
    header's union arms."""

    xdr: tuple
    # Each key is a union arm's name in version one. A `Message` uses these names. The value is the
    # same union arm's name in the version of this layout.
    arms: dict

    def name(self, arm):
        """Returns the name that this version uses for a union arm."""
        return self.arms.get(arm, arm)

    def arm(self, name):
        """Returns the name that version one uses for a union arm. `name` is the name of the arm in
        this version."""
        return next((arm for arm, other in self.arms.items() if other == name), name)


LAYOUTS = {
    1: Layout(xdr_oracle.rdma_msg, {}),
    2: Layout(xdr_oracle.rpcrdma2_xprt_hdr, {
        "RDMA_MSG": "RDMA2_MSG", "RDMA_NOMSG": "RDMA2_NOMSG", "RDMA_ERROR": "RDMA2_ERROR",
        "RDMA_OPTIONAL": "RDMA2_OPTIONAL", "ERR_VERS": "RDMA2_ERR_VERS",
        "ERR_CHUNK": "RDMA2_ERR_BAD_HEADER", "ERR_OPTION": "RDMA2_ERR_INVAL_OPTION"}),
}


@dataclasses.dataclass
class Message:
    """A message that was decoded or that will be encoded."""

    xid: int
    # Version that determines the layout of the message; None means the version of its call.
    wire: int | None = None
    vers: int | None = None  # Content of the version word; None means the version of the layout.
    credit: int = GRANT
    kind: str = "RDMA_MSG"
    # The direction word, which exists only in version two. Messages of the type RDMA2_OPTIONAL have
    # it, too.
    direction: int = REPLY
    # The Read list: pairs of a position and a Segment.
    reads: list = dataclasses.field(default_factory=list)
    # the Write list: each chunk is a list of Segments
    writes: list = dataclasses.field(default_factory=list)
    reply: list | None = None                                # the Reply chunk: a list of Segments
    # Used only if the message is an error: the name of the error's union arm, and the lowest and
    # the highest supported version.
    error: tuple = ()
    # Used only if the message is an option: the number and the information of the option.
    option: tuple = (0, b"")
    payload: bytes = b""

    def header(self):
        """Returns the transport header."""
        layout = LAYOUTS[self.wire or 1]
        if self.kind == "RDMA_ERROR":
            name, low, high = self.error
            versions = {"rdma_vers_low": low, "rdma_vers_high": high}
            body: object = (layout.name(name), versions if name == "ERR_VERS" else None)
        elif self.kind == "RDMA_OPTIONAL":
            number, information = self.option
            body = {"rdma_optdir": self.direction, "rdma_opttype": number,
                    "rdma_optinfo": information}
        else:
            # The header of version one has no direction word.
            body = {"rdma_direction": self.direction,
                    "rdma_reads": [{"position": position, "target": fields(segment)}
                                   for position, segment in self.reads],
                    "rdma_writes": [chunk(segments) for segments in self.writes],
                    "rdma_reply": None if self.reply is None else chunk(self.reply)}
        return layout.xdr[1]({
            "rdma_xid": self.xid, "rdma_vers": (self.wire or 1) if self.vers is None else self.vers,
            "rdma_credit": self.credit, "rdma_body": (layout.name(self.kind), body)})

    def octets(self):
        return self.header() + self.payload

    def but(self, **changes):
        return dataclasses.replace(self, **changes)

    def segments(self):
        """Returns every segment that the peer may use."""
        return [segment for _, segment in self.reads] + [
            segment for segments in [*self.writes, self.reply or ()] for segment in segments]


def fields(segment):
    return dict(zip(("handle", "length", "offset"), segment, strict=True))


def chunk(segments):
    return {"target": [fields(segment) for segment in segments]}


def version(octets):
    """Returns the version word, or None if the message ends before it."""
    found = numbers(octets, 4)
    return found[0] if found else None


def decode(octets):
    """Decodes a `Message` of a version in LAYOUTS from its bytes. Raises Malformed if the bytes
    cannot be decoded."""
    wire = version(octets)
    layout = LAYOUTS[wire]
    value, at = layout.xdr[0](octets, 0)
    name, body = value["rdma_body"]
    message = Message(value["rdma_xid"], wire, credit=value["rdma_credit"],
                      kind=layout.arm(name), payload=octets[at:])
    if message.kind == "RDMA_ERROR":
        name, versions = body
        message.error = layout.arm(name), *(versions.values() if versions else (0, 0))
    elif message.kind == "RDMA_OPTIONAL":
        message.direction = body["rdma_optdir"]
        message.option = body["rdma_opttype"], body["rdma_optinfo"]
    else:
        message.direction = body.get("rdma_direction", REPLY)
        message.reads = [(c["position"], Segment(c["target"].values()))
                         for c in body["rdma_reads"]]
        message.writes = [segments(c) for c in body["rdma_writes"]]
        message.reply = body["rdma_reply"] and segments(body["rdma_reply"])
    return message


def segments(value):
    return [Segment(target.values()) for target in value["target"]]


def filled(offered, count):
    """Returns the segments of a chunk with new lengths. The new length of a segment is the number
    of bytes that it receives if `count` bytes are written to the chunk."""
    lengths = []
    for segment in offered:
        lengths.append(min(segment.length, count))
        count -= lengths[-1]
    if count:
        raise ValueError(f"{count} octets too many for a chunk")
    return [segment.but(length=length)
            for segment, length in zip(offered, lengths, strict=True)]
