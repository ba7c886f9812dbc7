# SPDX-License-Identifier: GPL-2.0
"""Transport messages, by the independent coder that `tools/host/xdr_oracle.py` is."""

import dataclasses
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools/host"))

import xdr_oracle

GRANT = 32
CALL, REPLY = 0, 1
PAD = b"\0\0\0"


class Segment(tuple):
    """Handle, length and offset."""

    handle = property(lambda self: self[0])
    length = property(lambda self: self[1])
    offset = property(lambda self: self[2])

    def but(self, handle=None, length=None, offset=None):
        """The same with something changed."""
        return Segment(old if new is None else new
                       for old, new in zip(self, (handle, length, offset), strict=True))


def word(*numbers):
    """Numbers as XDR."""
    return struct.pack(f">{len(numbers)}I", *numbers)


def numbers(octets, at, count=1):
    """Numbers from XDR; fewer if the bytes end."""
    count = min(count, max(0, len(octets) - at) // 4)
    return struct.unpack(f">{count}I", octets[at:at + 4 * count])


def padded(octets):
    return octets + PAD[:-len(octets) % 4]


@dataclasses.dataclass
class Message:
    """A message of version 1, decoded or to be encoded."""

    xid: int
    vers: int = 1
    credit: int = GRANT
    kind: str = "RDMA_MSG"
    reads: list = dataclasses.field(default_factory=list)    # (position, Segment)
    writes: list = dataclasses.field(default_factory=list)   # lists of Segments
    reply: list | None = None                                # of Segments
    error: tuple = ()                                        # the arm, its low and high version
    payload: bytes = b""

    def header(self):
        """The transport header."""
        if self.kind == "RDMA_ERROR":
            name, low, high = self.error
            versions = {"rdma_vers_low": low, "rdma_vers_high": high}
            body: object = (name, versions if name == "ERR_VERS" else None)
        else:
            body = {"rdma_reads": [{"position": position, "target": fields(segment)}
                                   for position, segment in self.reads],
                    "rdma_writes": [chunk(segments) for segments in self.writes],
                    "rdma_reply": None if self.reply is None else chunk(self.reply)}
        return xdr_oracle.rdma_msg[1]({"rdma_xid": self.xid, "rdma_vers": self.vers,
                                       "rdma_credit": self.credit,
                                       "rdma_body": (self.kind, body)})

    def octets(self):
        return self.header() + self.payload

    def but(self, **changes):
        return dataclasses.replace(self, **changes)

    def segments(self):
        """Every segment that the peer may use."""
        return [segment for _, segment in self.reads] + [
            segment for segments in [*self.writes, self.reply or ()] for segment in segments]


def fields(segment):
    return dict(zip(("handle", "length", "offset"), segment, strict=True))


def chunk(segments):
    return {"target": [fields(segment) for segment in segments]}


def decode(octets):
    """A `Message` from its bytes; raises xdr_oracle.Malformed."""
    value, at = xdr_oracle.rdma_msg[0](octets, 0)
    kind, body = value["rdma_body"]
    message = Message(value["rdma_xid"], value["rdma_vers"], value["rdma_credit"], kind,
                      payload=octets[at:])
    if kind == "RDMA_ERROR":
        name, versions = body
        message.error = name, *(versions.values() if versions else (0, 0))
        return message
    message.reads = [(c["position"], Segment(c["target"].values())) for c in body["rdma_reads"]]
    message.writes = [segments(c) for c in body["rdma_writes"]]
    message.reply = body["rdma_reply"] and segments(body["rdma_reply"])
    return message


def segments(value):
    return [Segment(target.values()) for target in value["target"]]


def filled(offered, count):
    """The segments of a chunk with the lengths that `count` bytes fill."""
    lengths = []
    for segment in offered:
        lengths.append(min(segment.length, count))
        count -= lengths[-1]
    if count:
        raise ValueError(f"{count} octets too many for a chunk")
    return [segment.but(length=length)
            for segment, length in zip(offered, lengths, strict=True)]
