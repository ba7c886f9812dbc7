// SPDX-License-Identifier: GPL-2.0

//! The transport, which is registered while a [`Registration`] exists.

use crate::{
    connection::{
        raw_address,
        Connection, //
    },
    driver,
    incoming::DELIVERED,
    ops::Ops,
    region::REGIONS,
    transport::Transport,
    util::init_net, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    net::IpAddr, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};
use xprtrdma_base::compat;
use xprtrdma_bindings as bindings;

/// Whether a [`Sysctls`] object exists.
static REGISTERED: Atomic<bool> = Atomic::new(false);

/// The registered sysctls. At most one object exists at a time, so its owner alone uses the global
/// variables of the transport.
///
/// Another module that provides the transport has sysctls of the same name. So if this module has
/// registered the sysctls, usually no other module provides the transport. There is an exception:
/// if a registration fails, the kernel forgets the other module's sysctls, too, and the next
/// registration succeeds.
struct Sysctls(());

impl Sysctls {
    /// Registers the sysctls. Returns `EBUSY` if an object exists already, or if another module has
    /// registered the sysctls. May sleep.
    fn register() -> Result<Self> {
        // ORDERING: Pairs with the release in `drop`.
        if REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: This module has not registered the sysctls, because no other object exists.
        let registered = to_result(unsafe { bindings::rdsrdma_register_sysctls() });
        if registered.is_err() {
            REGISTERED.store(false, Release);
        }
        registered.map(|()| Self(()))
    }
}

impl Drop for Sysctls {
    fn drop(&mut self) {
        // SAFETY: The sysctls were registered when this object was created.
        unsafe { bindings::rdsrdma_unregister_sysctls() };
        // ORDERING: Pairs with the exchange in `register`: the next owner of an object sees what
        // this owner did.
        REGISTERED.store(false, Release);
    }
}

/// Returns true if flow control by credits is switched on.
pub fn flow_control() -> bool {
    // SAFETY: The call has no requirements.
    unsafe { bindings::rdsrdma_flow_control() != 0 }
}

/// The registration of the module's only transport, for driver `T`.
///
/// Peers can connect as soon as this object exists. Programs find the transport after
/// [`Registration::open`], which must be the last step of loading the module. The reason: a program
/// with a socket holds a reference to the module. If a later step failed, the kernel would free the
/// module in spite of this reference.
///
/// Dropping this object destroys all connections. After [`Registration::open`] it must be dropped
/// only when the module is unloaded: then no program has a socket of the transport. If this object
/// is dropped earlier, the drop logs a warning and sleeps for ever.
///
/// # Invariants
///
/// - The operations of the transport are set, and the global variable refers to the driver.
/// - The transport is registered if `open` is set.
pub struct Registration<T: Transport> {
    open: Atomic<bool>,
    _sysctls: Sysctls,
    _driver: PhantomData<T>,
}

impl<T: Transport> Registration<T> {
    /// Prepares the transport for InfiniBand with this driver. May sleep.
    ///
    /// Returns `EBUSY` if a registration exists, or usually if another module provides this
    /// transport. RDS itself would report no error.
    pub fn new(driver: Arc<T>) -> Result<Self> {
        let sysctls = Sysctls::register()?;
        let raw = &raw mut bindings::rdsrdma_transport;
        // SAFETY: The transport belongs to this module, and is not registered: there is no other
        // registration, because this thread owns the sysctls.
        unsafe { Ops::<T>::fill(raw) };
        driver::set(driver);
        // INVARIANT: The operations and the driver are set, and the transport is not registered.
        Ok(Self {
            open: Atomic::new(false),
            _sysctls: sysctls,
            _driver: PhantomData,
        })
    }

    /// Registers the transport, so that programs find it. A second call does nothing. May sleep.
    pub fn open(&self) {
        if self.open.xchg(true, Full) {
            return;
        }
        // INVARIANT: The call registers the transport.
        // SAFETY: The transport is a complete static object, which this module has not registered
        // yet. If another module has registered a transport of this type, RDS logs this, and does
        // not use the object.
        unsafe { bindings::rds_trans_register(&raw mut bindings::rdsrdma_transport) };
        // SAFETY: This module has not registered the functions that list connections yet. If
        // another module has registered such functions, RDS logs this, and does not use those of
        // this module. Before Linux 7.3 it stops the kernel instead (`BUG_ON()`).
        unsafe { bindings::rdsrdma_register_tables() };
    }

    /// Counts connections. Returns three values:
    ///
    /// - whether a connection between these addresses exists
    /// - the number of connections that this peer has requested
    /// - the number of connections that all peers have requested
    ///
    /// The numbers do not include connections that RDS created for a program on this host.
    pub fn count(&self, local: IpAddr, peer: IpAddr, tos: u8) -> (bool, usize, usize) {
        let (local, peer) = (raw_address(local), raw_address(peer));
        let mut count = bindings::rdsrdma_count::default();
        // SAFETY: All arguments are valid. The callee writes all fields of `count`.
        unsafe { bindings::rdsrdma_count_nodes(&local, &peer, tos, &mut count) };
        (count.known, count.of_peer, count.all)
    }

    /// Returns the connection between these addresses. Creates the connection if it does not exist.
    /// The returned connection is ready for use by all threads. `known` says whether
    /// [`Registration::count`] has found a connection between these addresses. If `known` is false,
    /// the connection is counted as requested by the peer. May sleep.
    ///
    /// No connection is destroyed while the registration is borrowed.
    pub fn find(
        &self,
        (local, peer, tos): (IpAddr, IpAddr, u8),
        known: bool,
    ) -> Result<Arc<Connection<T>>> {
        let (local, peer) = (raw_address(local), raw_address(peer));
        // SAFETY: All arguments are valid. By the type invariant, the transport is complete.
        let conn = from_err_ptr(unsafe {
            bindings::rds_conn_create(
                init_net().as_raw(),
                &local,
                &peer,
                &raw mut bindings::rdsrdma_transport,
                tos,
                bindings::GFP_KERNEL,
                0,
            )
        })?;
        // SAFETY: Only the drop of this object destroys connections, and the object is borrowed.
        let trans = unsafe { (*conn).c_trans };
        if trans != &raw mut bindings::rdsrdma_transport {
            // The peer is this host. Another transport carries the messages within this host, so
            // this transport refuses the connection.
            return Err(compat::not_supported());
        }
        // SAFETY: Only the drop of this object destroys connections, and the object is borrowed.
        let data = unsafe { (*(*conn).c_path).cp_transport_data };
        // SAFETY: `conn_alloc` created this reference. It stays with RDS.
        let found = unsafe { Arc::from_raw(data.cast::<Connection<T>>().cast_const()) };
        let found = ManuallyDrop::new(found);
        found.gate.open();
        if !known {
            // SAFETY: The node is in the list, because no connection is destroyed now.
            unsafe { bindings::rdsrdma_node_of_peer(found.node.get()) };
        }
        Ok(Arc::clone(&found))
    }
}

impl<T: Transport> Drop for Registration<T> {
    fn drop(&mut self) {
        // ORDERING: No other thread uses the object any more.
        let open = self.open.load(Relaxed);
        if open {
            // SAFETY: The call has no requirements.
            unsafe { bindings::xprtrdma_must_be_unloading() };
        }
        // SAFETY: The call has no requirements.
        unsafe { bindings::rdsrdma_begin_unloading() };
        if open {
            // Another thread may still be listing this module's connections. The thread does not
            // sleep while it lists them. So the thread has left this module when
            // `xprtrdma_wait_for_preempted`, which is called below, has returned.
            // SAFETY: `open` has registered the functions that list connections.
            unsafe { bindings::rdsrdma_unregister_tables() };
            // SAFETY: By the type invariant this module has registered the transport.
            unsafe { bindings::rds_trans_unregister(&raw mut bindings::rdsrdma_transport) };
        }
        // SAFETY: The call has no requirements.
        let mut node = unsafe { bindings::rdsrdma_first_node() };
        while !node.is_null() {
            // SAFETY: A node is in the list until RDS frees its connection. From now on no
            // connection is created, and only the second loop of this function frees connections.
            let conn = unsafe { (*node).conn };
            // SAFETY: The connection exists, because its node is in the list. The connection has
            // one path.
            let data = unsafe { (*(*conn).c_path).cp_transport_data };
            // SAFETY: `conn_alloc` created this reference. It stays with RDS.
            let connection = unsafe { &*data.cast::<Connection<T>>().cast_const() };
            connection.gate.close();
            // SAFETY: The node stays in the list, because only the second loop of this function
            // frees connections.
            node = unsafe { bindings::rdsrdma_next_node(node) };
        }
        // From now on no message is delivered. But messages that wait until a program reads them
        // still refer to their connections and to the operations of the transport. So this thread
        // waits until RDS has freed these messages.
        if !DELIVERED.is_none() {
            // LOG: The module is being unloaded, and waits until programs have read these messages
            // or have closed their sockets.
            pr_warn!("waiting until sockets of another transport have no message of this one\n");
        }
        DELIVERED.wait();
        loop {
            // SAFETY: The call has no requirements.
            let node = unsafe { bindings::rdsrdma_first_node() };
            if node.is_null() {
                break;
            }
            // SAFETY: The node is in the list, so its connection exists.
            let conn = unsafe { (*node).conn };
            // SAFETY: The connection exists. Only RDS uses it, because its gate is closed. No
            // program has a socket of the transport, no message refers to the connection, and the
            // transport creates no more connections. A thread that lists the connections holds the
            // lock of the list, and the connection is removed from the list before RDS frees it.
            unsafe { bindings::rds_conn_destroy(conn) };
        }
        // No program and no message refers to a region any more. But another transport may still
        // hold a reference to a region of a closed socket, and a work item may still be releasing a
        // region. So this thread waits until all regions are freed.
        REGIONS.wait();
        // Other threads may still run code of this module: the threads that freed the last message
        // and the last region, and a thread that lists this module's connections. So this thread
        // waits for them.
        // SAFETY: The call has no requirements.
        unsafe { bindings::xprtrdma_wait_for_preempted() };
        // SAFETY: `new` set the driver. No more connections are created and no region exists, so
        // `get` is not called any more.
        drop(unsafe { driver::take_back::<T>() });
    }
}
