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
        device_events,
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
        LocalFault,
        QueueDemand,
        QueueLimits,
        QueueSizes, //
    },
    credit::ForwardCredits,
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
        let events = device_events::listen(xprt, id, &device).map_err(resources)?;
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
        let sizes = QueueSizes::new(
            &QueueLimits {
                queue_wrs: device.max_qp_wr,
                completions: device.max_cqe,
            },
            &QueueDemand {
                slots,
                callbacks: CALLBACK_SLOTS,
                send_size: send_size as usize,
            },
        );
        let config = QpConfig {
            send_bytes: sizes.send_bytes,
            least_send_bytes: sizes.least_send_bytes,
            send_wrs: sizes.send_wrs,
            signal_every: SIGNAL_EVERY,
            message_wrs: sizes.message_wrs,
            waiting_wrs: WAITING_WRS,
            recv_count: sizes.recv_count,
            recv_batch: sizes.recv_batch,
            recv_size: receive_size as usize,
        };
        let pages = params::region_pages().min(device.max_fast_reg_pages);
        let regions = RegionPool::new(
            &pd,
            pages,
            device.sg_gaps,
            sizes.regions(pages, kernel::page::PAGE_SIZE),
            xprt,
            &self.common,
        )
        .map_err(resources)?;
        let deferred = KVec::with_capacity(slots, GFP_KERNEL).map_err(|_| resources(ENOMEM))?;
        let state = Arc::pin_init(
            pin_init!(Shared {
                credits <- new_spinlock!(ForwardCredits::new(sizes.credits), "Shared::credits"),
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
            _events: events,
            replied: Atomic::new(false),
            large: Atomic::new(0),
            heard: Atomic::new(Jiffies::now().count()),
            no_credit_since: Atomic::new(0),
            trimmed: Atomic::new(Jiffies::now().count()),
            strict: params::strict(),
            requested: ForwardCredits::new(sizes.credits).request(),
            known_grant: Atomic::new(0),
            aloof: Atomic::new(0),
            state,
        };
        attempt.qp = Some(Qp::create(&pd, &config, conn).map_err(resources)?);
        Ok(())
    }
}
