// SPDX-License-Identifier: GPL-2.0

//! What a connection is made of: sizes, regions and a queue pair.

use crate::{
    connection::{
        regions::RegionPool,
        Connection,
        Shared, //
    },
    driver::Rdma,
    link::{
        attempt::Attempt,
        now,
        Link, //
    },
    params,
    rpc::callback::CALLBACK_SLOTS, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        SetOnce, //
    },
};
use xprtrdma_proto::{
    conn::{
        Epoch,
        LocalFault, //
    },
    credit::ForwardCredits,
    header::MAX_SEGMENTS,
    limit::{
        DiscardLimit,
        DEFAULT_DISCARD_LIMIT, //
    },
    PrivateData,
    Version, //
};
use xprtrdma_rdma::{
    device::DeviceInfo,
    pd::Pd,
    qp::{
        Qp,
        QpConfig, //
    },
};
use xprtrdma_sunrpc::{
    util::Jiffies,
    xprt::BackRef, //
};

/// Work requests in a row of which one is signalled; most calls take two.
const SIGNAL_EVERY: u32 = 64;

/// Work requests that may wait for one doorbell.
const WAITING_WRS: u16 = 31;

impl Link {
    pub(crate) fn create_qp(
        &self,
        xprt: &BackRef<Rdma>,
        attempt: &mut Attempt,
        epoch: Epoch,
    ) -> Result<(), LocalFault> {
        let resources = |_| LocalFault::NoResources;
        let id = attempt.id.as_ref().ok_or(LocalFault::DeviceGone)?;
        let device = DeviceInfo::of(id).ok_or(LocalFault::DeviceGone)?;
        if !device.fast_reg {
            pr_err!("{} has no fast registration\n", device.name());
            return Err(LocalFault::DeviceUnsuitable);
        }
        attempt.device = Some(device);
        let pd = Pd::alloc(id.clone()).map_err(resources)?;
        attempt.pd = Some(pd.clone());

        // Once for each connection: what is announced is what is posted.
        let (send_size, receive_size) = xprt.data().inline_sizes();
        attempt.own = Some(PrivateData {
            // What proves nothing is not asked for.
            remote_invalidation: device.refuses_stale_keys,
            send_size,
            receive_size,
        });
        let slots = xprt.slots().count();
        let inline = send_size as usize;
        let callbacks = u32::from(CALLBACK_SLOTS);
        // Both queues need one entry for the drain; the receive queue also a batch.
        let depth = device.max_qp_wr.min(device.max_cqe / 2).saturating_sub(1);
        let wanted = u32::try_from(slots).unwrap_or(u32::MAX);
        let batch = ((wanted + callbacks) / 8).clamp(1, 32);
        let credits = wanted.min(depth.saturating_sub(callbacks + batch)).max(1);
        let config = QpConfig {
            send_bytes: (inline * 16).clamp(4 * inline, 256 << 10),
            least_send_bytes: 4 * inline,
            send_wrs: (credits * 3 + 160).min(depth),
            signal_every: SIGNAL_EVERY,
            message_wrs: 2 * MAX_SEGMENTS as u16 + 1,
            waiting_wrs: WAITING_WRS,
            recv_count: (credits + callbacks) as u16,
            recv_batch: batch as u16,
            recv_size: receive_size as usize,
        };
        let pages = params::region_pages().min(device.max_fast_reg_pages);
        let regions = RegionPool::new(
            &pd,
            pages,
            device.sg_gaps,
            2 * credits as usize * regions_per_chunk(pages),
            xprt,
            &self.common,
        )
        .map_err(resources)?;
        let deferred = KVec::with_capacity(slots, GFP_KERNEL).map_err(|_| resources(ENOMEM))?;
        let state = Arc::pin_init(
            pin_init!(Shared {
                credits <- new_spinlock!(ForwardCredits::new(credits), "Shared::credits"),
                discards <- new_spinlock!(
                    DiscardLimit::new(DEFAULT_DISCARD_LIMIT, now()),
                    "Shared::discards"
                ),
                deferred <- new_spinlock!(deferred, "Shared::deferred"),
            }),
            GFP_KERNEL,
        )
        .map_err(resources)?;
        let conn = Connection {
            xprt: xprt.clone(),
            common: self.common.clone(),
            epoch,
            version: Version::V1,
            thresholds: SetOnce::new(),
            regions,
            device,
            replied: Atomic::new(false),
            large: Atomic::new(0),
            heard: Atomic::new(Jiffies::now().count()),
            no_credit_since: Atomic::new(0),
            trimmed: Atomic::new(Jiffies::now().count()),
            strict: params::strict(),
            requested: ForwardCredits::new(credits).request(),
            known_grant: Atomic::new(0),
            aloof: Atomic::new(0),
            state,
        };
        attempt.qp = Some(Qp::create(&pd, &config, conn).map_err(resources)?);
        Ok(())
    }
}

/// Regions of `pages` pages for one chunk of the largest payload.
fn regions_per_chunk(pages: u32) -> usize {
    let needed = params::MAX_PAYLOAD / kernel::page::PAGE_SIZE + 1;
    needed.div_ceil(pages.max(1) as usize)
}
