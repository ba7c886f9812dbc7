// SPDX-License-Identifier: GPL-2.0

//! Makes a connection from its parts: queue sizes, regions and a queue pair.

use super::{
    credits::CALLBACK_SLOTS,
    peer_state::{
        Agreement,
        KnownGrant,
        LargeSend,
        Once,
        Starvation, //
    },
    polling::Polling,
    Connection,
    Disbelief,
    Locked,
    Pools,
    Services, //
};
use crate::{
    driver::Rdma,
    machine::now,
    params, //
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
        QueueDemand,
        QueueLimits,
        QueueSizes, //
    },
    credit::ForwardCredits,
    limit::{
        DiscardLimit,
        DEFAULT_DISCARD_LIMIT, //
    },
    v2::refusals::Refusals,
    PrivateData,
    Version, //
};
use xprtrdma_rdma::{
    cm::CmId,
    device::DeviceInfo,
    events::{
        DeviceEvents,
        DeviceHandler, //
    },
    pd::Pd,
    qp::{
        Qp,
        QpConfig,
        QpOwner, //
    },
};
use xprtrdma_sunrpc::{
    util::Jiffies,
    xprt::BackRef, //
};

/// Out of this number of consecutive work requests, one is signalled. Most calls take two work
/// requests.
const SIGNAL_EVERY: u32 = 64;

/// Maximum number of work requests that wait for one doorbell.
const WAITING_WRS: u16 = 31;

/// Computes the queue sizes of a connection that carries `slots` calls at a time on this device.
fn queue_sizes(device: &DeviceInfo, slots: usize, send_size: u32) -> QueueSizes {
    QueueSizes::new(
        &QueueLimits {
            queue_wrs: device.max_qp_wr,
            completions: device.max_cqe,
            fences: device.executes_again,
        },
        &QueueDemand {
            slots,
            callbacks: CALLBACK_SLOTS,
            send_size: send_size as usize,
        },
    )
}

/// The parts from which a connection is made.
pub(crate) struct Setup<'a> {
    xprt: &'a BackRef<Rdma>,
    services: &'a Services,
    id: &'a Arc<CmId>,
    pd: &'a Arc<Pd>,
    device: DeviceInfo,
    /// The reason why the server is not asked to invalidate regions; `None` if it is asked.
    disbelief: Option<Disbelief>,
    /// Two sizes in bytes: of the largest message that is sent without RDMA, and of the largest
    /// message that is received without RDMA.
    inline_sizes: (u32, u32),
}

impl<'a> Setup<'a> {
    /// Begins the setup of a connection. `id` is the rdma_cm id of the connection, and `pd` is the
    /// protection domain of the id's device. `inline_sizes` are two sizes in bytes: of the largest
    /// message that is sent without RDMA, and of the largest message that is received without RDMA.
    pub(crate) fn new(
        xprt: &'a BackRef<Rdma>,
        services: &'a Services,
        (id, pd): (&'a Arc<CmId>, &'a Arc<Pd>),
        device: DeviceInfo,
        inline_sizes: (u32, u32),
    ) -> Self {
        Self {
            xprt,
            services,
            id,
            pd,
            device,
            disbelief: Disbelief::of(&device, services.counters()),
            inline_sizes,
        }
    }

    /// Returns the private data that announce the connection to the server.
    pub(crate) fn private_data(&self) -> PrivateData {
        PrivateData {
            // The private data do not announce remote invalidation if the client would not trust an
            // invalidation by the server.
            remote_invalidation: self.disbelief.is_none(),
            send_size: self.inline_sizes.0,
            receive_size: self.inline_sizes.1,
        }
    }

    /// Makes connection number `epoch`. `events` handles asynchronous events of the device. May
    /// sleep.
    pub(crate) fn make(
        self,
        epoch: Epoch,
        events: Arc<dyn DeviceHandler>,
    ) -> Result<QpOwner<Connection>> {
        let (xprt, services, device) = (self.xprt, self.services, self.device);
        let (send_size, receive_size) = self.inline_sizes;
        let slots = xprt.slots().count();
        let sizes = queue_sizes(&device, slots, send_size);
        let pages = params::region_pages().min(device.max_fast_reg_pages);
        let bound = sizes.regions(pages, kernel::page::PAGE_SIZE);
        let regions = Pools::new(self.pd, &device, pages, bound, xprt, services)?;
        let deferred = KVec::with_capacity(slots, GFP_KERNEL)?;
        let locked = Arc::pin_init(
            pin_init!(Locked {
                credits <- new_spinlock!(
                    ForwardCredits::new(sizes.credits),
                    "Connection::credits"
                ),
                discards <- new_spinlock!(
                    DiscardLimit::new(DEFAULT_DISCARD_LIMIT, now()),
                    "Connection::discards"
                ),
                refusals <- new_spinlock!(Refusals::default(), "Connection::refusals"),
                deferred <- new_spinlock!(deferred, "Connection::deferred"),
            }),
            GFP_KERNEL,
        )?;
        let connection = Connection {
            xprt: xprt.clone(),
            services: services.clone(),
            epoch,
            agreement: Agreement::none(),
            version: Atomic::new(Version::V1.number()),
            probe: SetOnce::new(),
            probe_answered: Once::new(),
            regions,
            device,
            _events: DeviceEvents::listen(self.id.clone(), events)?,
            strict: params::strict(),
            believes: Atomic::new(self.disbelief.is_none()),
            disbelief: self.disbelief,
            last_rx: Atomic::new(Jiffies::now().count()),
            last_end: Atomic::new(Jiffies::now().count()),
            requested: ForwardCredits::new(sizes.credits).request(),
            known_grant: KnownGrant::none(),
            first_reply: Once::new(),
            large: LargeSend::new(),
            large_reported: Once::new(),
            starvation: Starvation::new(),
            polling: Polling::new(),
            locked,
        };
        let queues = QpConfig {
            send_bytes: sizes.send_bytes,
            least_send_bytes: sizes.least_send_bytes,
            send_wrs: sizes.send_wrs,
            signal_every: SIGNAL_EVERY,
            message_wrs: sizes.message_wrs,
            waiting_wrs: WAITING_WRS,
            recv_count: sizes.recv_count,
            recv_batch: sizes.recv_batch,
            recv_more: 0,
            recv_size: receive_size as usize,
        };
        Qp::create(self.pd, &queues, connection)
    }
}
