// SPDX-License-Identifier: GPL-2.0

//! A connection: two addresses, and the state for sending messages between them ([`Connection`]).

use crate::{
    driver,
    gate::{
        Gate,
        Inside, //
    },
    incoming::{
        Incoming,
        DELIVERED, //
    },
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

/// Number of 64-bit words in a congestion map.
pub const MAP_WORDS: usize = 1024;

/// A connection, which RDS and the driver share.
///
/// # Invariants
///
/// - RDS owns a reference, made with [`Arc::into_raw`], from its call of `conn_alloc` to its call
///   of `conn_free`. During that time `node` is in the list of connections and refers to the
///   `rds_connection`.
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

// SAFETY: The lock of the list protects `node`, except the member `conn`, which is constant. All
// other fields are `Send`.
unsafe impl<T: Transport> Send for Connection<T> {}
// SAFETY: The lock of the list protects `node`, except the member `conn`, which is constant. All
// other fields are `Sync`.
unsafe impl<T: Transport> Sync for Connection<T> {}

impl<T: Transport> Connection<T> {
    /// Creates the object that represents a connection, and adds the object to the list of
    /// connections. Does not sleep.
    ///
    /// # Safety
    ///
    /// RDS is creating the connection `raw`, and has set its addresses. The transport is registered
    /// for driver `T`.
    pub(crate) unsafe fn create(raw: *mut bindings::rds_connection) -> Result<Arc<Self>> {
        // SAFETY: By this function's contract `raw` is valid, and its addresses are set.
        let local = unsafe { address(&raw const (*raw).c_laddr) };
        // SAFETY: By this function's contract `raw` is valid, and its addresses are set.
        let peer = unsafe { address(&raw const (*raw).c_faddr) };
        // SAFETY: By this function's contract `raw` is valid.
        let tos = unsafe { (*raw).c_tos };
        // SAFETY: By this function's contract the transport is registered for driver `T`.
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
        // SAFETY: The node is not in the list yet. The node is not moved or freed, because the
        // caller passes a reference to the object to RDS.
        unsafe { bindings::rdsrdma_node_add(this.node.get(), raw) };
        Ok(this)
    }

    /// Returns the address of this host.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns the type of service.
    pub fn tos(&self) -> u8 {
        self.tos
    }

    /// Returns the driver of the transport.
    pub fn driver(&self) -> &Arc<T> {
        &self.driver
    }

    /// Returns the driver's state of the connection.
    pub fn data(&self) -> &T::Connection {
        &self.data
    }

    /// Returns an object with which the driver can call RDS, unless the connection is being
    /// destroyed. Does not sleep.
    #[inline(always)]
    pub fn enter(&self) -> Option<Entered<'_>> {
        let inside = self.gate.enter()?;
        // SAFETY: `conn` has been constant since the object was added to the list.
        let conn = unsafe { (*self.node.get()).conn };
        // INVARIANT: RDS does not free the connection before the gate is closed. Closing the gate
        // waits until `inside` is dropped.
        Some(Entered {
            conn: NonNull::new(conn)?,
            _inside: inside,
        })
    }

    /// Stores details of an established connection. Tools such as `rds-info` show these details.
    /// Does not sleep.
    pub fn show(&self, details: &Details) {
        let raw = bindings::rdsrdma_details {
            own_gid: details.gids.0,
            peer_gid: details.gids.1,
            send_wrs: details.send_wrs,
            receives: details.receives,
            sges: details.sges,
            regions: details.regions,
            pages: details.pages,
        };
        // SAFETY: The node was initialised when the object was created. The callee takes the lock
        // that protects the field, and copies `raw`.
        unsafe { bindings::rdsrdma_node_show(self.node.get(), &raw) };
    }

    /// Drops the connection, unless it is being destroyed. RDS then calls [`Transport::shut_down`].
    /// Does not sleep.
    pub fn drop_path(&self) {
        if let Some(entered) = self.enter() {
            entered.drop_path();
        }
    }
}

/// What tools such as `rds-info` show of a connection that is up.
#[derive(Clone, Copy, Debug)]
pub struct Details {
    /// The GIDs of this end and of the peer.
    pub gids: ([u8; 16], [u8; 16]),
    /// Number of work requests for which the send queue has space.
    pub send_wrs: u32,
    /// Number of Receives that are kept posted.
    pub receives: u32,
    /// Maximum number of scatter/gather elements in a work request.
    pub sges: u32,
    /// Maximum number of regions of all programs together.
    pub regions: u32,
    /// Maximum number of pages of a region.
    pub pages: u32,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection is down, and no attempt to connect is in progress.
    Down,
    /// This end or the peer is connecting.
    Connecting,
    /// The connection is up.
    Up,
    /// The connection is being shut down.
    Ending,
}

/// Access to RDS for a connection. RDS does not destroy the connection while this object exists.
///
/// # Invariants
///
/// `conn` is valid while this object exists.
pub struct Entered<'a> {
    conn: NonNull<bindings::rds_connection>,
    _inside: Inside<'a>,
}

impl Entered<'_> {
    /// Returns the state of the connection, which may change at any time.
    pub fn state(&self) -> State {
        // SAFETY: By the type invariant, the pointer is valid.
        let state = unsafe { bindings::rdsrdma_state(self.conn.as_ptr()) };
        // CAST: The state is a small number that is not negative.
        match state as u32 {
            bindings::RDS_CONN_DOWN => State::Down,
            bindings::RDS_CONN_CONNECTING => State::Connecting,
            bindings::RDS_CONN_UP => State::Up,
            _ => State::Ending,
        }
    }

    /// Starts to connect. The driver calls this when the peer has requested a connection. Returns
    /// false if the connection is not down. May sleep.
    pub fn begin_connecting(&self) -> bool {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::rdsrdma_begin_connecting(self.conn.as_ptr()) }
    }

    /// Tells RDS that the connection is up and uses this protocol version. If the connection was
    /// dropped during its set-up, drops the connection again.
    pub fn connected(&self, version: u32) {
        let conn = self.conn.as_ptr();
        if self.state() != State::Connecting {
            self.drop_path();
            return;
        }
        // SAFETY: By the type invariant, the pointer is valid. Two threads may write the field at
        // the same time. The field is a single word, so one of the two values stays.
        unsafe { (&raw mut (*conn).c_version).write_volatile(version) };
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::rds_connect_complete(conn) };
    }

    /// Drops the connection. RDS then shuts it down. Does not sleep.
    pub fn drop_path(&self) {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::rds_conn_drop(self.conn.as_ptr()) };
    }

    /// Makes RDS send the messages that are waiting. Does not sleep.
    pub fn wake_sender(&self) {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::rdsrdma_wake_sender(self.conn.as_ptr()) };
    }

    /// Returns true if RDS keeps no message of this connection: no message waits to be sent, is
    /// being sent, or waits for the peer's acknowledgement. Does not sleep.
    #[cold]
    pub fn is_idle(&self) -> bool {
        // SAFETY: By the type invariant, the pointer is valid. The callee takes the lock that it
        // needs.
        unsafe { bindings::rdsrdma_is_idle(self.conn.as_ptr()) }
    }

    /// Tells RDS that the peer has received all messages up to this sequence number. May sleep.
    #[inline]
    pub fn acknowledged(&self, sequence: u64) {
        // SAFETY: By the type invariant, the connection is valid. The last argument may be `None`:
        // then RDS compares sequence numbers to find the messages that the peer has received.
        unsafe { bindings::rds_send_drop_acked(self.conn.as_ptr(), sequence, None) };
    }

    /// Returns the sequence number that RDS expects in the next message. RDS drops a message that
    /// was sent again and has a lower number. Must not be called while another thread delivers a
    /// message of this connection. Otherwise the result may be outdated.
    pub fn next_sequence(&self) -> u64 {
        // SAFETY: By the type invariant, the pointer is valid.
        let path = unsafe { (*self.conn.as_ptr()).c_path };
        // SAFETY: The connection has one path, which exists as long as the connection. Other
        // threads may write the field at the same time. The field is a single word, so the value
        // that is read is either the old or the new value.
        unsafe { (&raw const (*path).cp_next_rx_seq).read_volatile() }
    }

    /// Delivers a message with this header to RDS. If two threads deliver messages of one
    /// connection at the same time, RDS may drop a message or deliver it twice. May sleep.
    #[inline(always)]
    pub fn deliver(&self, header: &[u8; HEADER_BYTES], message: KBox<Incoming>) {
        let conn = self.conn.as_ptr();
        // `DELIVERED` counts the message until `inc_free` frees the message.
        DELIVERED.add();
        let inc: *mut bindings::rds_incoming = KBox::into_raw(message).cast();
        // SAFETY: By the type invariant, the connection is valid. Its addresses are constant.
        let from = unsafe { &raw mut (*conn).c_faddr };
        // SAFETY: By the type invariant, the connection is valid. Its addresses are constant.
        let to = unsafe { &raw mut (*conn).c_laddr };
        // SAFETY: `inc` is the first member of an object that nothing else uses. The callee
        // initialises it with one reference.
        unsafe { bindings::rds_inc_init(inc, conn, from) };
        // SAFETY: `inc` was initialised above.
        let place = unsafe { &raw mut (*inc).i_hdr };
        // SAFETY: The header in `inc` has `HEADER_BYTES` bytes, and contains no padding.
        unsafe { place.cast::<[u8; HEADER_BYTES]>().write_unaligned(*header) };
        // SAFETY: All pointers are valid. The called function takes another reference if RDS keeps
        // the message. RDS protects its lists by locks. If several threads deliver messages of the
        // connection, they race only for the expected sequence number, which is a single word.
        unsafe { bindings::rds_recv_incoming(conn, from, to, inc, bindings::GFP_KERNEL) };
        // SAFETY: This drops the reference that `rds_inc_init` created.
        unsafe { bindings::rds_inc_put(inc) };
    }

    /// Returns true if the peer's address belongs to this host too. RDS has one congestion map for
    /// each address. If the peer's address belongs to this host, RDS itself changes the map of this
    /// address. That map is not a copy of a map that the peer sent.
    pub fn shares_maps(&self) -> bool {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::rdsrdma_is_loopback(self.conn.as_ptr()) }
    }

    /// Tells programs that the congestion map of this end's address has changed. The driver calls
    /// this if both ends are on this host ([`Entered::shares_maps`]). In that case senders read
    /// this map itself, and not a received copy.
    pub fn same_congestion(&self) {
        // SAFETY: By the type invariant, the pointer is valid. The map is constant.
        let map = unsafe { (*self.conn.as_ptr()).c_lcong };
        // SAFETY: Maps are not freed while connections exist.
        unsafe { bindings::rds_cong_map_updated(map, u64::MAX) };
    }

    /// Replaces the congestion map of the peer. `opened` receives the old and the new value of a
    /// word, and returns the bits of the ports that can receive again. Programs that wait for one
    /// of these ports are woken. Does nothing if both ends are on this host and share their maps,
    /// because the received words are then older than the map.
    pub fn congestion(&self, words: impl Iterator<Item = u64>, opened: impl Fn(u64, u64) -> u64) {
        if self.shares_maps() {
            return;
        }
        // SAFETY: By the type invariant, the pointer is valid. The map is constant.
        let map = unsafe { (*self.conn.as_ptr()).c_fcong };
        let mut woken = 0;
        for (index, word) in words.take(MAP_WORDS).enumerate() {
            // CAST: The index is less than 1024.
            // SAFETY: Maps are not freed while connections exist. The index is inside the map.
            let before = unsafe { bindings::rdsrdma_set_map_word(map, index as u32, word.to_le()) };
            woken |= opened(u64::from_le(before), word);
        }
        // SAFETY: Maps are not freed while connections exist.
        unsafe { bindings::rds_cong_map_updated(map, woken) };
    }
}

/// Converts an address of RDS, which stores IPv4 addresses as IPv4-mapped IPv6 addresses.
///
/// # Safety
///
/// `addr` is valid.
pub(crate) unsafe fn address(addr: *const bindings::in6_addr) -> IpAddr {
    // SAFETY: By this function's contract the address is valid. All members of the union are plain
    // bytes.
    let v6 = Ipv6Addr::from(unsafe { (*addr).in6_u.u6_addr8 });
    match v6.to_ipv4_mapped() {
        Some(v4) => v4.into(),
        None => v6.into(),
    }
}

/// Converts an address to the form that RDS uses.
pub(crate) fn raw_address(addr: IpAddr) -> bindings::in6_addr {
    let bytes = match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mut raw = bindings::in6_addr::default();
    raw.in6_u.u6_addr8 = bytes;
    raw
}
