# SPDX-License-Identifier: GPL-2.0
"""Connections that the requester (a simulated client) requests. The code is based on the
connections of the responder (a simulated server)."""

import contextlib
import select
import time

from pyverbs import enums as e
from pyverbs import librdmacm_enums as ce
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr

from ..env import ENV
from ..hostile.message import Segment
from ..hostile.verbs import (
    CM_EVENT,
    RECEIVES,
    WAIT_SECONDS,
    Connection,
    Device,
    PyverbsRDMAError,
    with_descriptor,
)
from .row import PRIVATE, READ, WRITE, NotAccepted

RESOLVE_MILLISECONDS = 5000
# The access rights of a peer to memory, by the names that rows use.
RIGHTS = {READ: e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ,
          WRITE: e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE}
REACHABLE = RIGHTS[READ] | RIGHTS[WRITE]


class Requester(Connection):
    """A connection to a server. `connect` establishes it."""

    # The memory sizes of a connection are small, because a test makes many connections at the same
    # time.
    stage_bytes, outgoing_bytes = 4096, 256 << 10

    def __init__(self, device, address, port, receives=RECEIVES, source=None):
        self.device, self.receives, self.events = device, receives, []
        self.domain = device.pd
        self.cm, self.cm_fd = with_descriptor(CMEventChannel, "rdma_cm")
        cm_id = CMID(creator=self.cm)
        if source:
            cm_id.bind_addr(AddrInfo(src=source, src_service="0", port_space=ce.RDMA_PS_TCP,
                                     flags=ce.RAI_PASSIVE))
        to = AddrInfo(dst=address, dst_service=str(port), port_space=ce.RDMA_PS_TCP)
        cm_id.resolve_addr(to, RESOLVE_MILLISECONDS)
        self.expect_event("addr_resolved")
        cm_id.resolve_route(RESOLVE_MILLISECONDS)
        self.expect_event("route_resolved")
        self.regions, self.closed = [], False
        super().__init__(device, cm_id)

    def start(self):
        attributes, mask = self.id.init_qp_attr(e.IBV_QPS_INIT)
        # The peer's access rights to memory are set here, because the connection manager sets them
        # only when the connection is established.
        attributes.qp_access_flags = REACHABLE
        self.qp.modify(attributes, mask)
        for number in range(self.receives):
            self.post_receive(number)

    def connect(self, private=PRIVATE, reads=16, establish=True):
        """Connects, and returns the server's private data. If `establish` is false, the last
        message that establishes the connection is not sent, so the server continues to wait for it.
        """
        # With this value of `rnr_retry` the server's device retries a Send for ever if this side
        # has posted no Receive.
        parameters = ConnParam(resources=reads, depth=reads, rnr_retry=7, retry=7,
                               qp_num=self.qp.qp_num, data_len=len(private))
        if private:
            parameters.set_private_data(private)
        self.id.connect(parameters)
        announced = self.expect_event("connect_response")
        self.become(e.IBV_QPS_RTR)
        self.become(e.IBV_QPS_RTS)
        if establish:
            self.id.establish()
        return announced

    def request(self, private=PRIVATE):
        """Sends a connection request, and does not wait for the answer."""
        parameters = ConnParam(resources=1, depth=1, qp_num=self.qp.qp_num, data_len=len(private))
        parameters.set_private_data(private)
        self.id.connect(parameters)

    def event(self, seconds):
        """Returns the next event and its private data, or "none" if no event arrives."""
        if not select.select([self.cm_fd], [], [], seconds)[0]:
            return "none", b""
        try:
            event = CMEvent(self.cm)
        except PyverbsRDMAError:
            return "none", b""
        name, private = CM_EVENT[event.event_type], bytes(event.private_data or b"")
        event.ack_cm_event()
        return name, private

    def expect_event(self, wanted):
        """Waits for this event, and returns its private data."""
        name, private = self.event(ENV.patience(WAIT_SECONDS))
        if name != wanted:
            raise NotAccepted(f"{name} instead of {wanted}")
        return private

    def ended(self):
        """Returns whether the server has ended the connection."""
        self.drain()
        name, _ = self.event(0)
        if name != "none":
            self.events.append(name)
        return "disconnected" in self.events or bool(self.broken)

    def memory(self, content, rights=READ):
        """Registers memory with this content or, if `content` is a number, with this length.
        Returns the region and a segment that describes it."""
        length = content if isinstance(content, int) else len(content)
        region = MR(self.domain, max(length, 1), RIGHTS[rights])
        if not isinstance(content, int) and content:
            region.write(content, length)
        self.regions.append(region)
        return region, Segment((region.rkey, length, region.buf))

    def change_domain(self):
        """Makes later calls of `memory` use a protection domain to which the queue pair does not
        belong."""
        self.domain = PD(self.device.context)

    def take_back(self):
        """Deregisters the latest region, so that the peer can no longer access it."""
        self.regions.pop().close()

    def post_write_with_immediate(self):
        """Posts an RDMA Write of zero bytes with immediate data. Such a Write consumes a Receive of
        the server."""
        self.post(e.IBV_WR_RDMA_WRITE_WITH_IMM, 0, self.stage, extra=7)

    def fall_silent(self):
        """Makes the requester stop answering and acknowledging packets."""
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)

    def receive_one(self, seconds):
        """Returns the next message, or None if no message arrives in time."""
        deadline = time.monotonic() + seconds
        while not self.received:
            self.drain()
            left = deadline - time.monotonic()
            if self.received:
                break
            if left <= 0 or self.ended():
                return None
            select.select([self.fd, self.cm_fd], [], [], min(left, 0.2))
        return self.received.popleft()

    def close(self):
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(PyverbsRDMAError):
            self.id.disconnect()
        self.qp.close()
        for region in self.regions:
            with contextlib.suppress(PyverbsRDMAError):
                region.close()
        if self.domain is not self.device.pd:
            self.domain.close()
        super().close()
        self.cm.close()


__all__ = ["RECEIVES", "Device", "PyverbsRDMAError", "Requester"]
