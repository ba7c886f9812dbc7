// SPDX-License-Identifier: GPL-2.0

//! The statistics counters of a transport.

use super::Xprt;
use crate::transport::Transport;
use xprtrdma_base::time::Jiffies;

/// Counters that the RPC client and this crate keep for every transport.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, seq_file::SeqFile, seq_print};
/// # use xprtrdma_sunrpc::{transport::Transport, xprt::{Xprt, XprtStat}};
/// fn show<T: Transport>(xprt: &Xprt<T>, m: &SeqFile) {
///     let XprtStat { sends, recvs, .. } = xprt.stat();
///     seq_print!(m, "{sends} sent, {recvs} received\n");
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of the statistics line")]
pub struct XprtStat {
    pub bind_count: usize,
    pub connect_count: usize,
    pub connect_time_s: u64,
    pub idle_time_s: u64,
    pub sends: usize,
    pub recvs: usize,
    pub bad_xids: usize,
    pub req_u: u64,
    pub bklog_u: u64,
}

impl<T: Transport> Xprt<T> {
    /// Returns the counters that the RPC client keeps for this transport.
    pub fn stat(&self) -> XprtStat {
        let connected = self.is_connected();
        let _transport = self.transport_lock().lock();
        // SAFETY: The fields are plain numbers. The lock protects most of the fields. The values of
        // all other fields may be outdated.
        unsafe {
            let xprt = &*self.as_raw();
            let ms = |j: usize| u64::from(Jiffies(j).as_ms());
            XprtStat {
                bind_count: xprt.stat.bind_count,
                connect_count: xprt.stat.connect_count,
                connect_time_s: ms(xprt.stat.connect_time) / 1000,
                idle_time_s: if connected {
                    ms(self.unused().count()) / 1000
                } else {
                    0
                },
                sends: xprt.stat.sends,
                recvs: xprt.stat.recvs,
                bad_xids: xprt.stat.bad_xids,
                req_u: xprt.stat.req_u,
                bklog_u: xprt.stat.bklog_u,
            }
        }
    }
}
