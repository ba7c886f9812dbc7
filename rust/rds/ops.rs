// SPDX-License-Identifier: GPL-2.0

//! The C operations made from a [`Transport`]: pointers become references, and one method is
//! called.

use crate::{
    connection::{
        address,
        Connection, //
    },
    driver,
    incoming::Incoming,
    memory::Memory,
    message::{
        Message,
        HEADER_BYTES, //
    },
    transport::{
        Range,
        Sent,
        Transport, //
    },
    util::{
        init_net,
        Net, //
    }, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::compat;
use xprtrdma_bindings::{
    self as bindings,
    // C declares it inside of another structure.
    rds_message__bindgen_ty_1_rm_rdma_op as rm_rdma_op, //
};

const EPROTOTYPE: c_int = 91;

/// The C operations of a driver.
pub(crate) struct Ops<T: Transport>(PhantomData<T>);

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by RDS only, under the contract of rds_transport"
)]
impl<T: Transport> Ops<T> {
    /// Fills in the operations of the transport, which is not registered.
    ///
    /// # Safety
    ///
    /// `raw` is valid, and nothing else uses it.
    pub(crate) unsafe fn fill(raw: *mut bindings::rds_transport) {
        // SAFETY: By this function's contract.
        let raw = unsafe { &mut *raw };
        raw.laddr_check = Some(Self::laddr_check);
        raw.conn_alloc = Some(Self::conn_alloc);
        raw.conn_free = Some(Self::conn_free);
        raw.conn_path_connect = Some(Self::connect);
        raw.conn_path_shutdown = Some(Self::shutdown);
        raw.xmit_path_complete = Some(Self::sent);
        raw.xmit = Some(Self::xmit);
        raw.xmit_rdma = Some(Self::xmit_rdma);
        raw.recv_path = Some(Self::recv_path);
        raw.inc_copy_to_user = Some(Self::copy_to_user);
        raw.inc_free = Some(Self::inc_free);
        raw.get_mr = Some(Self::get_mr);
        raw.sync_mr = Some(Self::sync_mr);
        raw.free_mr = Some(Self::free_mr);
        raw.flush_mrs = Some(Self::flush_mrs);
    }

    unsafe extern "C" fn laddr_check(
        net: *mut bindings::net,
        addr: *const bindings::in6_addr,
        scope: u32,
    ) -> c_int {
        if net != init_net().as_raw() {
            return -EPROTOTYPE;
        }
        // SAFETY: RDS passes a valid address.
        let addr = unsafe { address(addr) };
        // SAFETY: RDS keeps the namespace during the call.
        match T::is_local(unsafe { Net::from_raw(net) }, addr, scope) {
            true => 0,
            false => compat::EADDRNOTAVAIL,
        }
    }

    unsafe extern "C" fn conn_alloc(raw: *mut bindings::rds_connection, _gfp: u32) -> c_int {
        // SAFETY: RDS makes this connection, and has set its addresses; the transport is
        // registered.
        match unsafe { Connection::<T>::create(raw) } {
            Ok(connection) => {
                // INVARIANT: This is the reference of RDS.
                let data = Arc::into_raw(connection).cast_mut().cast();
                // SAFETY: As above; there is one path.
                unsafe { (*(*raw).c_path).cp_transport_data = data };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    unsafe extern "C" fn conn_free(data: *mut c_void) {
        // SAFETY: The reference that `conn_alloc` made is taken back, once. RDS has shut the
        // connection down, or has never used it: its gate is closed.
        let connection = unsafe { Arc::from_raw(data.cast::<Connection<T>>().cast_const()) };
        // SAFETY: In the list since `conn_alloc`, by the type invariant.
        unsafe { bindings::rdsrdma_node_del(connection.node.get()) };
    }

    /// # Safety
    ///
    /// `path` is the path of a connection that RDS does not free for all of `'a`.
    unsafe fn of_path(path: *mut bindings::rds_conn_path) -> ManuallyDrop<Arc<Connection<T>>> {
        // SAFETY: By this function's contract.
        let data = unsafe { (*path).cp_transport_data };
        // SAFETY: Made by `conn_alloc`; the reference stays with RDS, for this one is not dropped.
        ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<Connection<T>>().cast_const()) })
    }

    unsafe extern "C" fn connect(path: *mut bindings::rds_conn_path) -> c_int {
        // SAFETY: RDS keeps the connection during the call.
        let connection = unsafe { Self::of_path(path) };
        connection.gate.open();
        T::connect(&connection).map_or_else(Error::to_errno, |()| 0)
    }

    unsafe extern "C" fn shutdown(path: *mut bindings::rds_conn_path) {
        // SAFETY: RDS keeps the connection during the call.
        let connection = unsafe { Self::of_path(path) };
        T::shut_down(&connection);
    }

    unsafe extern "C" fn sent(path: *mut bindings::rds_conn_path) {
        // SAFETY: RDS keeps the connection during the call.
        let connection = unsafe { Self::of_path(path) };
        T::sent(&connection);
    }

    unsafe extern "C" fn xmit(
        raw: *mut bindings::rds_connection,
        message: *mut bindings::rds_message,
        header_offset: c_uint,
        sg: c_uint,
        offset: c_uint,
    ) -> c_int {
        // SAFETY: RDS keeps the connection during the call.
        let connection = unsafe { Self::of_path((*raw).c_path) };
        let Some(message) = NonNull::new(message) else {
            return EINVAL.to_errno();
        };
        // SAFETY: Valid during the call; RDS passes a place in the payload.
        let at = unsafe { bindings::rdsrdma_offset(message.as_ptr(), sg, offset) };
        // SAFETY: RDS keeps the message during the call.
        let message = unsafe { Message::from_raw(message) };
        let begun = header_offset != 0;
        match T::transmit(&connection, &message, at, begun) {
            // CAST: NO-OVERFLOW: At most a message, which has a mebibyte.
            Sent::Some(payload) if begun => payload as c_int,
            Sent::Some(payload) => payload.wrapping_add(HEADER_BYTES as u32) as c_int,
            Sent::Later => ENOMEM.to_errno(),
        }
    }

    unsafe extern "C" fn xmit_rdma(
        raw: *mut bindings::rds_connection,
        op: *mut rm_rdma_op,
    ) -> c_int {
        // SAFETY: RDS keeps the connection during the call.
        let connection = unsafe { Self::of_path((*raw).c_path) };
        // SAFETY: RDS passes the operation of a message.
        let message = unsafe { bindings::rdsrdma_message_of(op) };
        let Some(message) = NonNull::new(message) else {
            return EINVAL.to_errno();
        };
        // SAFETY: RDS keeps the message during the call.
        let message = unsafe { Message::from_raw(message) };
        match T::operate(&connection, &message) {
            true => 0,
            false => ENOMEM.to_errno(),
        }
    }

    /// Returns that all is well: receive buffers are posted again when they are free.
    unsafe extern "C" fn recv_path(_path: *mut bindings::rds_conn_path) -> c_int {
        0
    }

    unsafe extern "C" fn copy_to_user(
        inc: *mut bindings::rds_incoming,
        to: *mut bindings::iov_iter,
    ) -> c_int {
        // SAFETY: RDS keeps the message, which is an `Incoming`, during the call.
        let message = unsafe { &*inc.cast::<Incoming>() };
        let bytes = message.bytes();
        // SAFETY: The bytes are valid; RDS passes a valid place.
        unsafe { bindings::rdsrdma_copy_to_iter(bytes.as_ptr().cast(), bytes.len(), to) }
    }

    unsafe extern "C" fn inc_free(inc: *mut bindings::rds_incoming) {
        // SAFETY: The last reference is gone; `deliver` made it of such a box.
        drop(unsafe { KBox::from_raw(inc.cast::<Incoming>()) });
    }

    unsafe extern "C" fn get_mr(
        sg: *mut bindings::scatterlist,
        count: usize,
        rs: *mut bindings::rds_sock,
        key: *mut u32,
        _conn: *mut bindings::rds_connection,
        start: u64,
        len: u64,
        on_demand: c_int,
    ) -> *mut c_void {
        if on_demand != 0 {
            // The memory cannot be pinned.
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: RDS passes what this operation is about.
        match unsafe { Self::expose(sg, count, rs, key, start, len) } {
            Ok(region) => KBox::into_raw(region).cast(),
            Err(error) => error.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// The arguments are those of `get_mr`, with pinned pages.
    unsafe fn expose(
        sg: *mut bindings::scatterlist,
        count: usize,
        rs: *mut bindings::rds_sock,
        key: *mut u32,
        start: u64,
        len: u64,
    ) -> Result<KBox<T::Region>> {
        let sg = NonNull::new(sg).ok_or(EINVAL)?;
        let mut flags = bindings::rdsrdma_mr_flags::default();
        // SAFETY: The place of the key is in a `rds_mr`, whose flags are set.
        unsafe { bindings::rdsrdma_mr_flags(key, &mut flags) };
        // SAFETY: The socket is valid during the call, and bound.
        let local = unsafe { bindings::rdsrdma_bound_address(rs) };
        // SAFETY: As above.
        let local = unsafe { address(local) };
        // CAST: NO-OVERFLOW: A remainder.
        let first = (start % kernel::page::PAGE_SIZE as u64) as usize;
        // SAFETY: RDS has pinned the pages. If this operation succeeds, pages and table are ours.
        let (memory, claim) = unsafe { Memory::new(sg, count, first, usize::try_from(len)?) }?;
        // SAFETY: A program has a socket of the transport, so the module and its registration stay.
        let driver = unsafe { driver::get::<T>() };
        let range = Range {
            start,
            len,
            use_once: flags.use_once,
            invalidate: flags.invalidate,
        };
        let (region, number) = match driver.expose(local, range, memory) {
            Ok(exposed) => exposed,
            Err(error) => {
                claim.give_back();
                return Err(error);
            }
        };
        claim.claim();
        // SAFETY: The place is valid and this operation's to write.
        unsafe { *key = number };
        Ok(region)
    }

    unsafe extern "C" fn sync_mr(region: *mut c_void, direction: c_int) {
        // SAFETY: RDS keeps the region during the call; `get_mr` made it.
        let region = unsafe { &*region.cast::<T::Region>().cast_const() };
        // CAST: A small number.
        if direction as u32 == bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_FROM_DEVICE {
            T::acknowledged(region);
        } else {
            T::offered(region);
        }
    }

    unsafe extern "C" fn free_mr(region: *mut c_void, _invalidate: c_int) {
        // SAFETY: The last reference is gone; `get_mr` made it of such a box.
        T::release(unsafe { KBox::from_raw(region.cast::<T::Region>()) });
    }

    /// Does nothing: no region that was released can be reached. RDS takes a transport without this
    /// operation for one without regions.
    unsafe extern "C" fn flush_mrs() {}
}
