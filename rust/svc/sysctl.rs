// SPDX-License-Identifier: GPL-2.0

//! The files in `/proc/sys/sunrpc/svc_rdma`, under the names that people know.

use xprtrdma_bindings as bindings;

/// What is counted on all processors, for all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// `rdma_stat_recv`: messages that came.
    Received,
    /// `rdma_stat_read`: RDMA Reads.
    Read,
    /// `rdma_stat_write`: RDMA Writes.
    Written,
    /// `rdma_stat_sq_starve`: answers that found the send queue full.
    Starved,
}

impl Counter {
    /// Adds to it. May be called in any context.
    pub fn add(self, more: usize) {
        let index = match self {
            Self::Received => bindings::svcrdma_counter_SVCRDMA_STAT_RECV,
            Self::Read => bindings::svcrdma_counter_SVCRDMA_STAT_READ,
            Self::Written => bindings::svcrdma_counter_SVCRDMA_STAT_WRITE,
            Self::Starved => bindings::svcrdma_counter_SVCRDMA_STAT_SQ_STARVE,
        };
        // SAFETY: The index is one of the counters'.
        unsafe { bindings::svcrdma_count(index, more) };
    }
}

/// Sizes that are shown.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// `max_requests`: calls of one client in flight.
    pub requests: u32,
    /// `max_req_size`: bytes of a message.
    pub request_size: u32,
    /// `max_outbound_read_requests`: RDMA Reads of one connection under way.
    pub reads: u32,
}

/// `rdma_version`: the highest version of the protocol that new connections may have.
pub struct Version;

impl Version {
    /// Sets it; a writer of the file may do so later.
    pub fn preset(version: u32) {
        // SAFETY: The index is one of the sizes'.
        unsafe { bindings::svcrdma_set_size(bindings::svcrdma_size_SVCRDMA_VERSION, version) };
    }

    /// Returns it.
    pub fn get() -> u32 {
        // SAFETY: The index is one of the sizes'.
        unsafe { bindings::svcrdma_get_size(bindings::svcrdma_size_SVCRDMA_VERSION) }
    }
}

/// The files. Without memory for them, or if another module has them, there are none.
pub(crate) struct Table(());

impl Table {
    /// Makes the files. There is one such value at a time. May sleep.
    pub(crate) fn register(sizes: &Sizes) -> Self {
        for (index, size) in [
            (bindings::svcrdma_size_SVCRDMA_MAX_REQUESTS, sizes.requests),
            (
                bindings::svcrdma_size_SVCRDMA_MAX_REQ_SIZE,
                sizes.request_size,
            ),
            (bindings::svcrdma_size_SVCRDMA_MAX_READS, sizes.reads),
        ] {
            // SAFETY: The index is one of the sizes'.
            unsafe { bindings::svcrdma_set_size(index, size) };
        }
        // SAFETY: The files are not there: there is no other value.
        unsafe { bindings::svcrdma_register_sysctls() };
        Self(())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By `register`. The callee waits for readers and writers of the files.
        unsafe { bindings::svcrdma_unregister_sysctls() };
    }
}
