# SPDX-License-Identifier: GPL-2.0
"""Connections of the responder and of the requester: a queue pair, its memory, and the connection
manager."""

import collections
import contextlib
import errno
import gc
import os
import select
import time

from pyverbs import enums as e
from pyverbs import librdmacm_enums as ce
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from ..env import ENV

BUFFER = 4096           # number of bytes of each receive buffer, as announced
RECEIVES = 128
SENDS = 256
STAGE = (1 << 20) + (64 << 10)
OUTGOING = 2 << 20      # number of bytes of the memory for messages in flight
WAIT_SECONDS, PAUSE_SECONDS = 20, 0.05
MANY_FILES = 64         # more files than a call of a library opens
SEND_NUMBERS = 1 << 32  # smallest number of a work request that is not a Receive
SENDS_OF_ALL_KINDS = (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_INV, e.IBV_WR_SEND_WITH_IMM)
OK = "success"
STATUS = {getattr(e, name): name[len("IBV_WC_"):].lower().replace("_err", "")
          for name in dir(e) if name.startswith("IBV_WC_")
          and name.endswith(("_ERR", "_SUCCESS"))}
CM_EVENT = {getattr(ce, name): name[len("RDMA_CM_EVENT_"):].lower()
            for name in dir(ce) if name.startswith("RDMA_CM_EVENT_")}


def is_of(kind, fd):
    """Returns whether the name of this process's open file `fd` ends with `kind`."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith(kind)
    except OSError:
        return False


def with_descriptor(make, kind):
    """Creates an object of pyverbs. Returns the object and its file descriptor, which pyverbs does
    not expose."""
    # The kernel gives each new file the lowest free number. So the search below begins at that
    # number. It covers several numbers, because the first use of librdmacm opens other files before
    # the wanted file. The garbage collector must not close files here, because the new file could
    # then get a lower number.
    gc.disable()
    try:
        lowest = os.dup(0)
        os.close(lowest)
        made = make()
    finally:
        gc.enable()
    fd = next(fd for fd in range(lowest, lowest + MANY_FILES) if is_of(kind, fd))
    # An event that select() has reported may disappear before it is read, because the event's
    # object may disappear. A read must not wait for such an event, so the descriptor must not
    # block.
    os.set_blocking(fd, False)
    return made, fd


class Device:
    """The machine's RDMA device."""

    def __init__(self, name):
        self.context = Context(name=name)
        self.pd = PD(self.context)


class Listener:
    """A port to which clients can connect, with an event channel of its own."""

    def __init__(self, address, port):
        self.channel, self.fd = with_descriptor(CMEventChannel, "rdma_cm")
        self.id = CMID(creator=self.channel)
        self.bind(AddrInfo(src=address, src_service=str(port),
                           port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE))
        self.id.listen(16)

    def bind(self, address):
        """Binds to the address. Tries again if the address is in use, because a process that is
        ending may still use the address for a moment."""
        deadline = time.monotonic() + ENV.patience(WAIT_SECONDS)
        while True:
            try:
                self.id.bind_addr(address)
                return
            except PyverbsRDMAError as error:
                if error.error_code != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)

    def event(self):
        """Returns the next event: (name, private data, id of a connection request)."""
        try:
            event = CMEvent(self.channel)
        except PyverbsRDMAError:
            return "none", b"", None
        name = CM_EVENT[event.event_type]
        if name != "connect_request":
            event.ack_cm_event()
            return name, b"", None
        private = bytes(event.private_data or b"")
        cm_id = CMID(creator=event, listen_id=self.id)
        event.ack_cm_event()
        return name, private, cm_id


class Connection:
    """A connection that a client has requested."""

    stage_bytes, outgoing_bytes, buffer_bytes = STAGE, OUTGOING, BUFFER

    def __init__(self, device, cm_id, receive=None):
        self.id, self.received, self.done = cm_id, collections.deque(), {}
        self.broken, self.number = None, SEND_NUMBERS
        self.receive = receive or self.buffer_bytes
        self.channel, self.fd = with_descriptor(lambda: CompChannel(device.context),
                                                "[infinibandevent]")
        self.cq = CQ(device.context, RECEIVES + SENDS, None, self.channel, 0)
        self.cq.req_notify()
        self.qp = QP(device.pd, QPInitAttr(
            qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, sq_sig_all=1,
            cap=QPCap(max_send_wr=SENDS, max_recv_wr=RECEIVES)))
        self.buffers = MR(device.pd, RECEIVES * self.buffer_bytes, e.IBV_ACCESS_LOCAL_WRITE)
        self.stage = MR(device.pd, self.stage_bytes, e.IBV_ACCESS_LOCAL_WRITE)
        self.outgoing_at = 0
        self.outgoing = MR(device.pd, self.outgoing_bytes, e.IBV_ACCESS_LOCAL_WRITE)
        self.start()

    def start(self):
        """Posts every Receive, and makes the queue pair ready to send."""
        self.become(e.IBV_QPS_INIT)
        for number in range(RECEIVES):
            self.post_receive(number)
        self.become(e.IBV_QPS_RTR)
        self.become(e.IBV_QPS_RTS)

    def become(self, state):
        self.qp.modify(*self.id.init_qp_attr(state))

    def accept(self, private, reads=16):
        """Accepts the client's connection request. `reads` is the maximum number of RDMA Reads that
        this side may have in progress."""
        parameters = ConnParam(resources=reads, depth=reads, qp_num=self.qp.qp_num,
                               data_len=len(private))
        parameters.set_private_data(private)
        self.id.accept(parameters)

    def post_receive(self, number):
        entry = SGE(self.buffers.buf + number * self.buffer_bytes, self.receive,
                    self.buffers.lkey)
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[entry]))

    def drain(self):
        """Takes completions from the queue."""
        if select.select([self.fd], [], [], 0)[0]:
            self.channel.get_cq_event(self.cq)
            self.cq.ack_events(1)
            self.cq.req_notify()
        while True:
            count, completions = self.cq.poll(16)
            for wc in completions or ():
                self.completed(wc)
            if not count:
                return

    def completed(self, wc):
        status = STATUS[wc.status]
        if wc.wr_id >= SEND_NUMBERS:
            self.done[wc.wr_id] = status
        elif status == OK:
            self.received.append(self.buffers.read(wc.byte_len, wc.wr_id * self.buffer_bytes))
            self.post_receive(wc.wr_id)
        if status != OK:
            self.broken = self.broken or status

    def post(self, opcode, length, memory, offset=0, rkey=0, address=0, extra=0):
        """Posts a work request that uses some bytes of this side's memory. Returns the number of
        the work request."""
        self.number += 1
        entry = SGE(memory.buf + offset, length, memory.lkey)
        wr = SendWR(wr_id=self.number, opcode=opcode, num_sge=1, imm_data=extra, sg=[entry])
        if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
            wr.set_wr_atomic(rkey, address, 1)
        elif opcode not in SENDS_OF_ALL_KINDS:
            wr.set_wr_rdma(rkey, address)
        elif opcode == e.IBV_WR_SEND_WITH_INV:
            # In a work request, the key to invalidate and the immediate data share a union. So
            # `imm_data` already contains the key. But siw's library takes the key from the rkey
            # field of RDMA operations, so that field gets the key, too.
            wr.set_wr_rdma(extra, 0)
        self.qp.post_send(wr)
        return self.number

    def wait(self, number):
        """Waits for the completion of a work request. Returns the status of the completion."""
        deadline = time.monotonic() + ENV.patience(WAIT_SECONDS)
        while number not in self.done:
            self.drain()
            left = deadline - time.monotonic()
            if number not in self.done and (
                    left <= 0 or not select.select([self.fd], [], [], left)[0]):
                return "no completion"
        return self.done.pop(number)

    def perform(self, opcode, data=b"", length=None, **more):
        """Copies `data` to registered memory, executes one operation and waits for its completion.
        Returns the status of the completion."""
        if data:
            self.stage.write(data, len(data))
        length = len(data) if length is None else length
        return self.wait(self.post(opcode, length, self.stage, **more))

    def send(self, octets, invalidate=None, immediate=None):
        """Sends a message without waiting for its completion. If the Send fails, the connection is
        broken.

        `invalidate` and `immediate` must not both be given, because in a work request the key to
        invalidate and the immediate data share a union.
        """
        at, opcode, extra = self.store(octets), e.IBV_WR_SEND, 0
        if invalidate is not None:
            opcode, extra = e.IBV_WR_SEND_WITH_INV, invalidate
        elif immediate is not None:
            opcode, extra = e.IBV_WR_SEND_WITH_IMM, immediate
        return self.post(opcode, len(octets), self.outgoing, at, extra=extra)

    def send_many(self, octets, count):
        """Sends the same message many times, with a single call that posts all work requests."""
        entry = SGE(self.outgoing.buf + self.store(octets), len(octets), self.outgoing.lkey)
        chain = [None]
        for number in range(self.number + count, self.number, -1):
            chain.append(SendWR(wr_id=number, opcode=e.IBV_WR_SEND, num_sge=1, sg=[entry],
                                next_wr=chain[-1]))
        self.number += count
        self.qp.post_send(chain[-1])

    def store(self, octets):
        """Copies a message to the memory for outgoing messages, where the message can stay while it
        is in flight. Returns the position of the message in that memory."""
        if self.outgoing_at + len(octets) > self.outgoing_bytes:
            self.outgoing_at = 0
        at, self.outgoing_at = self.outgoing_at, self.outgoing_at + len(octets)
        if octets:
            self.outgoing.write(octets, len(octets), at)
        return at

    def write(self, rkey, address, data):
        """Makes an RDMA Write. Returns the status of the completion."""
        return self.perform(e.IBV_WR_RDMA_WRITE, data, rkey=rkey, address=address)

    def ping(self):
        """Posts an RDMA Write of zero bytes, and does not wait for its completion. If the Write
        fails, the connection is broken."""
        self.post(e.IBV_WR_RDMA_WRITE, 0, self.stage)

    def read(self, rkey, address, length):
        """Makes an RDMA Read. Returns the status and the data."""
        return self.end_read(self.begin_read(rkey, address, length), length)

    def begin_read(self, rkey, address, length):
        """Posts an RDMA Read. Returns the number of the work request."""
        return self.post(e.IBV_WR_RDMA_READ, length, self.stage, rkey=rkey, address=address)

    def end_read(self, number, length):
        """Waits for the completion of an RDMA Read. Returns the status and the data."""
        status = self.wait(number)
        return status, self.stage.read(length, 0)

    def write_with_immediate(self, rkey, address, data):
        return self.perform(e.IBV_WR_RDMA_WRITE_WITH_IMM, data, rkey=rkey, address=address,
                            extra=1)

    def atomic(self, rkey, address):
        """Makes an atomic operation on the peer's memory. The operation fetches a number and adds
        one to it."""
        return self.perform(e.IBV_WR_ATOMIC_FETCH_AND_ADD, length=8, rkey=rkey, address=address)

    def disconnect(self):
        """Asks the connection manager to disconnect."""
        # The connection may have ended already.
        with contextlib.suppress(PyverbsRDMAError):
            self.id.disconnect()

    def close(self):
        for thing in (self.qp, self.cq, self.channel, self.buffers, self.stage,
                      self.outgoing, self.id):
            thing.close()
