// SPDX-License-Identifier: GPL-2.0

//! The files in `/proc/sys/sunrpc/svc_rdma`. The files have the same names as the files of the
//! in-tree server.

use xprtrdma_bindings as bindings;

/// A counter, summed over all processors and all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// The counter `rdma_stat_recv`: number of messages received.
    Received,
    /// The counter `rdma_stat_read`: number of RDMA Reads.
    Read,
    /// The counter `rdma_stat_write`: number of RDMA Writes.
    Written,
    /// The counter `rdma_stat_sq_starve`: number of replies that found the send queue full.
    Starved,
}

impl Counter {
    /// Adds `more` to the counter. May be called in any context.
    #[inline(always)]
    pub fn add(self, more: usize) {
        match self {
            // SAFETY: The function may be called in any context.
            Self::Received => unsafe { bindings::svcrdma_count_received(more) },
            // SAFETY: As above.
            Self::Read => unsafe { bindings::svcrdma_count_read(more) },
            // SAFETY: As above.
            Self::Written => unsafe { bindings::svcrdma_count_written(more) },
            // SAFETY: As above.
            Self::Starved => unsafe { bindings::svcrdma_count_starved(more) },
        }
    }
}

/// Sizes that files in `/proc/sys/sunrpc/svc_rdma` show.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// `max_requests`: maximum number of calls in flight from one client.
    pub requests: u32,
    /// `max_req_size`: maximum size of a message, in bytes.
    pub request_size: u32,
    /// `max_outbound_read_requests`: maximum number of RDMA Reads in flight on one connection.
    pub reads: u32,
}

/// `rdma_version`: the highest version of the protocol that new connections may use.
pub struct Version;

impl Version {
    /// Sets the highest version that new connections may use. The administrator may change this
    /// setting later.
    pub fn preset(version: u32) {
        // SAFETY: The index is a value of `enum svcrdma_size`.
        unsafe { bindings::svcrdma_set_size(bindings::svcrdma_size_SVCRDMA_VERSION, version) };
    }

    /// Returns the version.
    pub fn get() -> u32 {
        // SAFETY: The index is a value of `enum svcrdma_size`.
        unsafe { bindings::svcrdma_get_size(bindings::svcrdma_size_SVCRDMA_VERSION) }
    }
}

/// The registration of the files. The files are missing if there was no memory for them, or if
/// another module has registered them.
pub(crate) struct Table(());

impl Table {
    /// Registers the files. At most one `Table` exists at a time. May sleep.
    pub(crate) fn register(sizes: &Sizes) -> Self {
        for (index, size) in [
            (bindings::svcrdma_size_SVCRDMA_MAX_REQUESTS, sizes.requests),
            (
                bindings::svcrdma_size_SVCRDMA_MAX_REQ_SIZE,
                sizes.request_size,
            ),
            (bindings::svcrdma_size_SVCRDMA_MAX_READS, sizes.reads),
        ] {
            // SAFETY: The index is a value of `enum svcrdma_size`.
            unsafe { bindings::svcrdma_set_size(index, size) };
        }
        // SAFETY: The files are not registered, because no other `Table` exists.
        unsafe { bindings::svcrdma_register_sysctls() };
        Self(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: `register` has registered the files. The called function waits until no thread
        // reads or writes the files.
        unsafe { bindings::svcrdma_unregister_sysctls() };
    }
}
