// SPDX-License-Identifier: GPL-2.0

//! A connection: a pair of addresses between which messages are sent ([`Connection`]).

use crate::{
    driver,
    gate::{
        Gate,
        Inside, //
    },
    incoming::Incoming,
    message::HEADER_BYTES,
    transport::Transport, //
};
use core::{
    net::{
        IpAddr,
        Ipv6Addr, //
    },
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use xprtrdma_bindings as bindings;

/// Words of a congestion map.
pub const MAP_WORDS: usize = 1024;

/// A connection, as RDS and the driver share it.
///
/// # Invariants
///
/// - RDS has a reference, made with [`Arc::into_raw`], from its `conn_alloc` to its `conn_free`.
///   During that time `node` is in the list of connections, and names the `rds_connection`.
/// - The `rds_connection` is valid while `gate` is open.
#[pin_data]
pub struct Connection<T: Transport> {
    pub(crate) node: Opaque<bindings::rdsrdma_node>,
    #[pin]
    pub(crate) gate: Gate,
    local: IpAddr,
    peer: IpAddr,
    tos: u8,
    driver: Arc<T>,
    #[pin]
    data: T::Connection,
}

// SAFETY: `node` is used by its list, which has a lock, and its `conn` is constant; the rest is
// `Send`.
unsafe impl<T: Transport> Send for Connection<T> {}
// SAFETY: As above.
unsafe impl<T: Transport> Sync for Connection<T> {}

impl<T: Transport> Connection<T> {
    /// Makes the object of a connection, and puts it into the list. Does not sleep.
    ///
    /// # Safety
    ///
    /// RDS makes the connection, whose addresses are set, and the transport is registered for
    /// driver `T`.
    pub(crate) unsafe fn create(raw: *mut bindings::rds_connection) -> Result<Arc<Self>> {
        // SAFETY: By this function's contract.
        let local = unsafe { address(&raw const (*raw).c_laddr) };
        // SAFETY: As above.
        let peer = unsafe { address(&raw const (*raw).c_faddr) };
        // SAFETY: As above.
        let tos = unsafe { (*raw).c_tos };
        // SAFETY: As above.
        let driver = unsafe { driver::get::<T>() };
        let this = Arc::pin_init(
            try_pin_init!(Self {
                node: Opaque::new(bindings::rdsrdma_node::default()),
                gate <- Gate::new(),
                local,
                peer,
                tos,
                driver,
                data <- T::create(),
            }? Error),
            GFP_ATOMIC | __GFP_NOWARN,
        )?;
        // SAFETY: The node is new, and stays where it is: the caller gives a reference to RDS.
        unsafe { bindings::rdsrdma_node_add(this.node.get(), raw) };
        Ok(this)
    }

    /// Returns the address of this end.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Returns the address of the other end.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns the type of service.
    pub fn tos(&self) -> u8 {
        self.tos
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Arc<T> {
        &self.driver
    }

    /// Returns the driver's part.
    pub fn data(&self) -> &T::Connection {
        &self.data
    }

    /// Returns access to RDS, unless the connection is being destroyed. Does not sleep.
    pub fn enter(&self) -> Option<Entered<'_>> {
        let inside = self.gate.enter()?;
        // SAFETY: Constant since the object is in the list.
        let conn = unsafe { (*self.node.get()).conn };
        // INVARIANT: The gate is open, and stays so as long as `inside` is there.
        Some(Entered {
            conn: NonNull::new(conn)?,
            _inside: inside,
        })
    }

    /// Ends the connection, if it is not being destroyed: RDS will call
    /// [`Transport::shut_down`]. Does not sleep.
    pub fn drop_path(&self) {
        if let Some(entered) = self.enter() {
            entered.drop_path();
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection is down, and no attempt to connect is in progress.
    Down,
    /// Either end is connecting.
    Connecting,
    /// The connection is up.
    Up,
    /// The connection is being shut down.
    Ending,
}

/// Access to RDS for a connection that exists.
///
/// # Invariants
///
/// `conn` is valid as long as the value exists.
pub struct Entered<'a> {
    conn: NonNull<bindings::rds_connection>,
    _inside: Inside<'a>,
}

impl Entered<'_> {
    /// Returns the state, which may change at once.
    pub fn state(&self) -> State {
        // SAFETY: Valid by the type invariant.
        let state = unsafe { bindings::rdsrdma_state(self.conn.as_ptr()) };
        // CAST: A small number.
        match state as u32 {
            bindings::RDS_CONN_DOWN => State::Down,
            bindings::RDS_CONN_CONNECTING => State::Connecting,
            bindings::RDS_CONN_UP => State::Up,
            _ => State::Ending,
        }
    }

    /// Begins to connect on behalf of the peer. `false`: the connection is not down. Sleeps.
    pub fn begin_connecting(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::rdsrdma_begin_connecting(self.conn.as_ptr()) }
    }

    /// Says that the connection is up and speaks this version. If it has been dropped since it
    /// began to connect, it is dropped again.
    pub fn connected(&self, version: u32) {
        let conn = self.conn.as_ptr();
        if self.state() != State::Connecting {
            self.drop_path();
            return;
        }
        // SAFETY: Valid by the type invariant. RDS leaves the field to the transport.
        unsafe { (*conn).c_version = version };
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::rds_connect_complete(conn) };
    }

    /// Ends the connection: RDS will shut it down.
    pub fn drop_path(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::rds_conn_drop(self.conn.as_ptr()) };
    }

    /// Makes RDS send the messages that wait.
    pub fn wake_sender(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::rdsrdma_wake_sender(self.conn.as_ptr()) };
    }

    /// The peer has received every message up to this number. Sleeps.
    pub fn acknowledged(&self, sequence: u64) {
        // SAFETY: Valid by the type invariant. Without a function RDS compares numbers.
        unsafe { bindings::rds_send_drop_acked(self.conn.as_ptr(), sequence, None) };
    }

    /// Delivers a message with this header. One at a time for each connection. Sleeps.
    pub fn deliver(&self, header: &[u8; HEADER_BYTES], message: KBox<Incoming>) {
        let conn = self.conn.as_ptr();
        let inc: *mut bindings::rds_incoming = KBox::into_raw(message).cast();
        // SAFETY: Valid by the type invariant, and constant.
        let from = unsafe { &raw mut (*conn).c_faddr };
        // SAFETY: As above.
        let to = unsafe { &raw mut (*conn).c_laddr };
        // SAFETY: `inc` is the first member of a value that nothing else uses; the callee
        // initialises it, with one reference.
        unsafe { bindings::rds_inc_init(inc, conn, from) };
        // SAFETY: Initialised just now.
        let place = unsafe { &raw mut (*inc).i_hdr };
        // SAFETY: The header has this length, and no padding of the compiler's.
        unsafe { place.cast::<[u8; HEADER_BYTES]>().write_unaligned(*header) };
        // SAFETY: All is valid; messages of a connection are delivered one at a time by this
        // method's contract. The callee takes a reference of its own if it keeps the message.
        unsafe { bindings::rds_recv_incoming(conn, from, to, inc, bindings::GFP_KERNEL) };
        // SAFETY: The reference of `rds_inc_init` is given up.
        unsafe { bindings::rds_inc_put(inc) };
    }

    /// Tells programs that the congestion map of the peer may have changed: both ends have the same
    /// address, and so the same map.
    pub fn same_congestion(&self) {
        // SAFETY: Valid by the type invariant; the map is constant.
        let map = unsafe { (*self.conn.as_ptr()).c_fcong };
        // SAFETY: Maps are never freed while there are connections.
        unsafe { bindings::rds_cong_map_updated(map, u64::MAX) };
    }

    /// Takes the congestion map of the peer. `opened` says which bits of a word tell of a port that
    /// can receive again, from what the word was and what it is. Programs that wait for one of
    /// these ports are woken.
    pub fn congestion(&self, words: impl Iterator<Item = u64>, opened: impl Fn(u64, u64) -> u64) {
        // SAFETY: Valid by the type invariant; the map is constant.
        let map = unsafe { (*self.conn.as_ptr()).c_fcong };
        let mut woken = 0;
        for (index, word) in words.take(MAP_WORDS).enumerate() {
            // CAST: Below 1024.
            // SAFETY: Maps are never freed while there are connections; the index is within it.
            let before = unsafe { bindings::rdsrdma_set_map_word(map, index as u32, word.to_le()) };
            woken |= opened(u64::from_le(before), word);
        }
        // SAFETY: As above.
        unsafe { bindings::rds_cong_map_updated(map, woken) };
    }
}

/// Reads an address; IPv4 ones are mapped.
///
/// # Safety
///
/// `addr` is valid.
pub(crate) unsafe fn address(addr: *const bindings::in6_addr) -> IpAddr {
    // SAFETY: By this function's contract; all views of the union are plain bytes.
    let v6 = Ipv6Addr::from(unsafe { (*addr).in6_u.u6_addr8 });
    match v6.to_ipv4_mapped() {
        Some(v4) => v4.into(),
        None => v6.into(),
    }
}

/// Makes an address as RDS has it.
pub(crate) fn raw_address(addr: IpAddr) -> bindings::in6_addr {
    let bytes = match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mut raw = bindings::in6_addr::default();
    raw.in6_u.u6_addr8 = bytes;
    raw
}
