// SPDX-License-Identifier: GPL-2.0

//! The C operations of a transport. Each operation converts pointers to references, and calls one
//! method of [`Transport`].

use crate::{
    connection::{
        address,
        Connection, //
    },
    driver,
    incoming::{
        Incoming,
        DELIVERED, //
    },
    memory::Memory,
    message::{
        Message,
        HEADER_BYTES, //
    },
    region::{
        may_sleep,
        Held, //
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
    pin::Pin,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};
use xprtrdma_base::{
    compat,
    holders::Holders, //
};
use xprtrdma_bindings::{
    self as bindings,
    // In C, struct rm_rdma_op is declared inside struct rds_message, so bindgen has chosen this
    // long name.
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
    /// Sets the operations of a transport that is not registered yet.
    ///
    /// # Safety
    ///
    /// `raw` is valid, and nothing else uses it.
    pub(crate) unsafe fn fill(raw: *mut bindings::rds_transport) {
        // SAFETY: By this function's contract `raw` is valid, and nothing else uses it.
        let raw = unsafe { &mut *raw };
        raw.laddr_check = Some(Self::laddr_check);
        raw.conn_alloc = Some(Self::conn_alloc);
        raw.conn_free = Some(Self::conn_free);
        raw.conn_path_connect = Some(Self::connect);
        raw.conn_path_shutdown = Some(Self::shutdown);
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
        // SAFETY: RDS is creating this connection, and has set its addresses. The transport is
        // registered.
        match unsafe { Connection::<T>::create(raw) } {
            Ok(connection) => {
                // INVARIANT: `data` stands for a reference, which RDS owns.
                let data = Arc::into_raw(connection).cast_mut().cast();
                // SAFETY: RDS is creating this connection, and has allocated its only path.
                unsafe { (*(*raw).c_path).cp_transport_data = data };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    unsafe extern "C" fn conn_free(data: *mut c_void) {
        // SAFETY: `from_raw` takes back the reference that `conn_alloc` created. RDS calls this
        // function once. The gate is closed, because RDS has shut the connection down or has never
        // used it.
        let connection = unsafe { Arc::from_raw(data.cast::<Connection<T>>().cast_const()) };
        // SAFETY: By the type invariant the node has been in the list since the call of
        // `conn_alloc`.
        unsafe { bindings::rdsrdma_node_del(connection.node.get()) };
    }

    /// # Safety
    ///
    /// `path` is the path of a connection that RDS does not free during `'a`.
    unsafe fn of_path(path: *mut bindings::rds_conn_path) -> ManuallyDrop<Arc<Connection<T>>> {
        // SAFETY: By this function's contract `path` is valid.
        let data = unsafe { (*path).cp_transport_data };
        // SAFETY: `conn_alloc` created the reference. It stays with RDS, because `ManuallyDrop`
        // does not drop this copy.
        ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<Connection<T>>().cast_const()) })
    }

    /// Returns the object of a connection, or `None` if there is no connection, or if the
    /// connection belongs to another transport.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a connection that RDS does not free during `'a`.
    unsafe fn own<'a>(raw: *mut bindings::rds_connection) -> Option<&'a Connection<T>> {
        if raw.is_null() {
            return None;
        }
        // SAFETY: By this function's contract `raw` is valid. Its transport is constant.
        if unsafe { (*raw).c_trans } != &raw mut bindings::rdsrdma_transport {
            return None;
        }
        // SAFETY: By this function's contract `raw` is valid. A connection always has a path.
        let path = unsafe { (*raw).c_path };
        // SAFETY: The path is valid as long as its connection.
        let data = unsafe { (*path).cp_transport_data };
        // SAFETY: The connection belongs to this transport, so `conn_alloc` has stored a pointer to
        // an object. RDS owns a reference to the object as long as the connection exists.
        unsafe { data.cast::<Connection<T>>().as_ref() }
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
        let at = match sg {
            0 => offset,
            // SAFETY: The message is valid during the call. RDS passes an offset in the message's
            // payload.
            _ => unsafe { bindings::rdsrdma_offset(message.as_ptr(), sg, offset) },
        };
        // SAFETY: RDS keeps the message during the call.
        let message = unsafe { Message::from_raw(message) };
        let begun = header_offset != 0;
        let Sent::Some(payload) = T::transmit(&connection, &message, at, begun) else {
            return ENOMEM.to_errno();
        };
        // RDS advances in the scatterlist of the payload by the returned number of payload bytes.
        // So this number must not exceed the remaining length of the payload.
        let payload = payload.min(message.len().saturating_sub(at));
        let header = if begun { 0 } else { HEADER_BYTES as u32 };
        // CAST: NO-OVERFLOW: The length of a message is at most a mebibyte.
        payload.wrapping_add(header) as c_int
    }

    unsafe extern "C" fn xmit_rdma(
        raw: *mut bindings::rds_connection,
        op: *mut rm_rdma_op,
    ) -> c_int {
        // SAFETY: RDS keeps the connection during the call.
        let connection = unsafe { Self::of_path((*raw).c_path) };
        // SAFETY: RDS passes a pointer to the operation of a message.
        let message =
            unsafe { kernel::container_of!(op, bindings::rds_message, __bindgen_anon_1.rdma) };
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

    /// Does nothing, and returns success. RDS calls this operation so that the transport receives
    /// further messages. This transport needs no such call, because it posts each receive buffer
    /// again as soon as the buffer is free.
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
        // SAFETY: The bytes are valid. RDS passes a valid iterator.
        unsafe { bindings::rdsrdma_copy_to_iter(bytes.as_ptr().cast(), bytes.len(), to) }
    }

    unsafe extern "C" fn inc_free(inc: *mut bindings::rds_incoming) {
        // SAFETY: RDS has dropped the last reference. `deliver` created the message from a `KBox`.
        drop(unsafe { KBox::from_raw(inc.cast::<Incoming>()) });
        // SAFETY: `deliver` has counted the message. The counter is static.
        unsafe { Holders::remove(&DELIVERED) };
    }

    unsafe extern "C" fn get_mr(
        sg: *mut bindings::scatterlist,
        count: usize,
        rs: *mut bindings::rds_sock,
        key: *mut u32,
        conn: *mut bindings::rds_connection,
        start: u64,
        len: u64,
        on_demand: c_int,
    ) -> *mut c_void {
        if on_demand != 0 {
            // Memory that is paged on demand cannot be pinned, so a request for such memory is
            // refused.
            return compat::not_supported().to_ptr();
        }
        // SAFETY: RDS passes the arguments of `get_mr`, and has pinned the pages.
        match unsafe { Self::expose(sg, count, rs, key, conn, (start, len)) } {
            Ok(held) => held.into_foreign(),
            Err(error) => error.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// The arguments are those of `get_mr`, and the pages are pinned.
    unsafe fn expose(
        sg: *mut bindings::scatterlist,
        count: usize,
        rs: *mut bindings::rds_sock,
        key: *mut u32,
        conn: *mut bindings::rds_connection,
        (start, len): (u64, u64),
    ) -> Result<Pin<KBox<Held<T>>>> {
        let sg = NonNull::new(sg).ok_or(EINVAL)?;
        let mut flags = bindings::rdsrdma_mr_flags::default();
        // SAFETY: `key` points into an `rds_mr` whose flags RDS has initialised.
        unsafe { bindings::rdsrdma_mr_flags(key, &mut flags) };
        // SAFETY: The socket is valid during the call, and bound.
        let local = unsafe { bindings::rdsrdma_bound_address(rs) };
        // SAFETY: The socket is valid during the call, so its address is valid.
        let local = || unsafe { address(local) };
        // CAST: NO-OVERFLOW: The remainder is less than the page size.
        let first = (start % kernel::page::PAGE_SIZE as u64) as usize;
        // SAFETY: RDS has pinned the pages. If this operation succeeds, the pages and the
        // scatterlist `sg` belong to the driver.
        let (memory, claim) = unsafe { Memory::new(sg, count, first, usize::try_from(len)?) }?;
        // SAFETY: A program has a socket of the transport, so the module cannot be unloaded, and
        // the transport stays registered.
        let driver = unsafe { driver::get::<T>() };
        let range = Range {
            len,
            use_once: flags.use_once,
            invalidate: flags.invalidate,
        };
        // SAFETY: RDS passes a connection, which it keeps during the call, or a null pointer.
        let connection = unsafe { Self::own(conn) };
        let exposed = driver.expose(local, connection, range, memory);
        let held = exposed.and_then(|(region, number)| Ok((Held::new(region)?, number)));
        let (held, number) = match held {
            Ok(held) => held,
            Err(error) => {
                claim.give_back();
                return Err(error);
            }
        };
        claim.claim();
        // SAFETY: `key` is valid, and only this operation writes to it.
        unsafe { *key = number };
        Ok(held)
    }

    /// Informs the driver that the RDMA ACK of a region has arrived, or that a program is about to
    /// send the handle of the region.
    ///
    /// Does nothing if the call must not sleep. This is the case only if an RDMA ACK has arrived
    /// over TCP. The peer cannot have done an RDMA operation there, so the ACK is forged. RDS then
    /// drops its own reference to a region that is used once, as after any ACK, and the access ends
    /// soon after the last reference was dropped.
    unsafe extern "C" fn sync_mr(region: *mut c_void, direction: c_int) {
        if !may_sleep() {
            return;
        }
        // SAFETY: `get_mr` created the object, and RDS keeps it during the call.
        let held = unsafe { Pin::<KBox<Held<T>>>::borrow(region) };
        let region = held.get_ref().region();
        // CAST: The direction is a small number that is not negative.
        if direction as u32 == bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_FROM_DEVICE {
            T::acknowledged(region);
        } else {
            T::offered(region);
        }
    }

    unsafe extern "C" fn free_mr(region: *mut c_void, _invalidate: c_int) {
        // SAFETY: RDS has dropped the last reference. `get_mr` created the object.
        let held = unsafe { Pin::<KBox<Held<T>>>::from_foreign(region) };
        if may_sleep() {
            drop(held);
            return;
        }
        // SAFETY: The region exists, so the registration of the transport was not dropped
        // completely: its drop waits for all regions, and takes the driver back afterwards.
        let driver = unsafe { driver::get::<T>() };
        Held::drop_later(held, driver.queue());
    }

    /// Does nothing, because no peer can access a released region. The operation must exist:
    /// without it RDS would assume that the transport has no regions.
    unsafe extern "C" fn flush_mrs() {}
}
