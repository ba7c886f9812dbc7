// SPDX-License-Identifier: GPL-2.0

//! The transport, registered while a [`Registration`] lives.

use crate::{
    connection::{
        raw_address,
        Connection, //
    },
    driver,
    ops::Ops,
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
            Relaxed, //
        },
        Arc, //
    }, //
};
use xprtrdma_bindings as bindings;

/// The sysctls, which stand for the transport: only one module can register them.
struct Sysctls;

impl Sysctls {
    fn register() -> Result<Self> {
        // SAFETY: No requirements; the module registers them once.
        to_result(unsafe { bindings::rdsrdma_register_sysctls() })?;
        Ok(Self)
    }
}

impl Drop for Sysctls {
    fn drop(&mut self) {
        // SAFETY: Registered when the value was made.
        unsafe { bindings::rdsrdma_unregister_sysctls() };
    }
}

/// Whether programs want flow control by credits.
pub fn flow_control() -> bool {
    // SAFETY: No requirements.
    unsafe { bindings::rdsrdma_flow_control() != 0 }
}

/// The registration of the module's one transport, for driver `T`.
///
/// Peers can connect as soon as it is made; programs find the transport once it is open. That is
/// the last step of loading the module, for a program keeps the module with a socket, but a module
/// that fails to load goes all the same.
///
/// Dropping it destroys every connection. By then no program has a socket of the transport.
///
/// # Invariants
///
/// - The operations of the transport are complete, and `driver` has the driver.
/// - The transport is registered if `open`.
pub struct Registration<T: Transport> {
    open: Atomic<bool>,
    _sysctls: Sysctls,
    _driver: PhantomData<T>,
}

impl<T: Transport> Registration<T> {
    /// Takes the place of the transport for InfiniBand, for a driver. May sleep.
    ///
    /// `EBUSY`: another module has it. RDS itself would not tell.
    pub fn new(driver: Arc<T>) -> Result<Self> {
        let sysctls = Sysctls::register()?;
        let raw = &raw mut bindings::rdsrdma_transport;
        // SAFETY: The object belongs to this module and is not registered.
        unsafe { Ops::<T>::fill(raw) };
        driver::set(driver);
        // INVARIANT: Complete, and not registered.
        Ok(Self {
            open: Atomic::new(false),
            _sysctls: sysctls,
            _driver: PhantomData,
        })
    }

    /// Registers the transport: from now on programs find it. Does nothing the second time. May
    /// sleep.
    pub fn open(&self) {
        if self.open.xchg(true, Full) {
            return;
        }
        // INVARIANT: Registered with this.
        // SAFETY: A complete static object. Its place is free, for the sysctls were.
        unsafe { bindings::rds_trans_register(&raw mut bindings::rdsrdma_transport) };
    }

    /// Counts the connections that exist: whether one between these addresses does, those with the
    /// peer, and all.
    pub fn count(&self, local: IpAddr, peer: IpAddr, tos: u8) -> (bool, usize, usize) {
        let (local, peer) = (raw_address(local), raw_address(peer));
        let mut count = bindings::rdsrdma_count::default();
        // SAFETY: All arguments are valid; the callee writes all of `count`.
        unsafe { bindings::rdsrdma_count_nodes(&local, &peer, tos, &mut count) };
        (count.known, count.of_peer, count.all)
    }

    /// Returns the connection between these addresses, which is made if it does not exist. Its gate
    /// is open. May sleep.
    ///
    /// No connection is destroyed as long as the registration is borrowed.
    pub fn find(&self, local: IpAddr, peer: IpAddr, tos: u8) -> Result<Arc<Connection<T>>> {
        let (local, peer) = (raw_address(local), raw_address(peer));
        // SAFETY: All arguments are valid. The transport is complete by the type invariant.
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
        // SAFETY: Connections are destroyed by the drop of this value, which is borrowed.
        let trans = unsafe { (*conn).c_trans };
        if trans != &raw mut bindings::rdsrdma_transport {
            // To itself: another transport carries that.
            return Err(EOPNOTSUPP);
        }
        // SAFETY: As above.
        let data = unsafe { (*(*conn).c_path).cp_transport_data };
        // SAFETY: The reference that `conn_alloc` made, which stays with RDS.
        let found = unsafe { Arc::from_raw(data.cast::<Connection<T>>().cast_const()) };
        let found = ManuallyDrop::new(found);
        found.gate.open();
        Ok(Arc::clone(&found))
    }
}

impl<T: Transport> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: No requirements.
        unsafe { bindings::rdsrdma_begin_unloading() };
        // ORDERING: No other thread has the value any more.
        if self.open.load(Relaxed) {
            // SAFETY: Registered by the type invariant, by this module.
            unsafe { bindings::rds_trans_unregister(&raw mut bindings::rdsrdma_transport) };
        }
        loop {
            // SAFETY: No requirements.
            let node = unsafe { bindings::rdsrdma_first_node() };
            if node.is_null() {
                break;
            }
            // SAFETY: A node is in the list until RDS frees the connection, which happens below
            // alone: no connection is made any more, so none loses a race.
            let conn = unsafe { (*node).conn };
            // SAFETY: As above. There is one path.
            let data = unsafe { (*(*conn).c_path).cp_transport_data };
            // SAFETY: The reference that `conn_alloc` made, which stays with RDS.
            let connection = unsafe { &*data.cast::<Connection<T>>().cast_const() };
            connection.gate.close();
            // SAFETY: The connection exists, and nothing but RDS uses it: its gate is closed. No
            // program has a socket of the transport, and the transport makes no connection any
            // more.
            unsafe { bindings::rds_conn_destroy(conn) };
        }
        // SAFETY: Set by `new`. No connection is made any more.
        drop(unsafe { driver::take_back::<T>() });
    }
}
