// SPDX-License-Identifier: GPL-2.0

//! An accepted connection, and how it is created.

use crate::{
    board::{
        Fates,
        OfConnection, //
    },
    driver::Rdma,
    events::Events,
    listener::Door,
    receive::Handler,
    sizes::{
        Device,
        Sizes, //
    },
    ticker::Ticker, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use xprtrdma_proto::{
    responder::{
        admit::Terms,
        spoken::Spoken, //
    },
    served::cause::Cause, //
};
use xprtrdma_rdma::{
    cm::{
        accept::AcceptParam,
        listen::Request, //
    },
    device::DeviceInfo,
    pd::Pd,
    qp::{
        Qp,
        QpOwner, //
    }, //
};
use xprtrdma_svc::{
    inbox::InboxOwner,
    reverse::LineOwner,
    service::Accepted,
    sysctl::Version,
    trace,
    util::{
        connection_reset,
        not_supported,
        Show, //
    }, //
};

/// A connection that was accepted.
pub(crate) struct Connection {
    pub(crate) qp: Arc<Qp<Handler>>,
    pub(crate) events: Arc<Events>,
    ticker: Arc<Ticker<Handler>>,
    /// The owner of the queue pair; `None` after the queue pair was destroyed.
    owner: Pin<KBox<Mutex<Option<QpOwner<Handler>>>>>,
    /// The debugfs file of the connection. The file exists as long as the queue pair.
    file: Pin<KBox<Mutex<Option<OfConnection>>>>,
    fates: Arc<Fates>,
}

impl Connection {
    /// Accepts a connection request. Writes the outcome to the log.
    pub(crate) fn accept(
        door: &Door,
        request: Request<Door>,
        longest_call: u32,
    ) -> Option<Accepted<Rdma>> {
        let events = request.events.clone();
        match Self::make(door, request, longest_call) {
            Ok((accepted, device)) => {
                door.board.fates().accepted();
                if events.may_log() {
                    // LOG: A client has connected.
                    pr_info!(
                        "connection from {} on {} accepted\n",
                        Show(&events.peer),
                        device.name()
                    );
                }
                Some(accepted)
            }
            Err(error) => {
                events.not_accepted(error);
                None
            }
        }
    }

    fn make(
        door: &Door,
        request: Request<Door>,
        longest_call: u32,
    ) -> Result<(Accepted<Rdma>, DeviceInfo)> {
        let Request { id, events } = request;
        if events.ending().has_ended() {
            // The client has disconnected while its connection request waited to be accepted.
            return Err(connection_reset());
        }
        let id = Arc::new(id, GFP_KERNEL)?;
        let device = DeviceInfo::of(&id).ok_or(ENODEV)?;
        let local = id.local_addr().ok_or(EINVAL)?;
        let pd = Pd::alloc(id.clone())?;
        let receive_size = events.agreed.receive_size;
        let sizes = Sizes::on(&device, pd.max_send_sges(), longest_call, receive_size)
            .ok_or_else(not_supported)?;
        let inbox = InboxOwner::new()?;
        let line = LineOwner::new()?;
        let terms = Terms {
            spoken: match Version::get() {
                2 => Spoken::Both,
                _ => Spoken::One,
            },
            reply_threshold: events.agreed.thresholds.reply,
            reply_threshold_v2: events.agreed.reply_v2,
            longest_call,
        };
        // The device refuses to connect if this host wants more Reads in flight than the device
        // supports. So the number is limited here. If the limit is zero, the connection is refused:
        // the first Read would never be executed, and would block all later work requests.
        let reads = events.agreed.reads.min(pd.max_reads());
        if reads == 0 {
            return Err(EINVAL);
        }
        let ticker = Ticker::new(door.queue.clone())?;
        let abilities = Device {
            sizes,
            reads,
            is_iwarp: device.ends_early,
        };
        let queue = door.queue.clone();
        let handles = (inbox.handle(), line.handle());
        let handler = Handler::new(&events, &pd, &abilities, terms, handles, &ticker, queue)?;
        let owner = Qp::create(&pd, &sizes.queues(), handler)?;
        let qp = owner.handle();
        let owner = KBox::pin_init(new_mutex!(Some(owner), "Connection::owner"), GFP_KERNEL)?;
        let peer = events.peer;
        let file = door.board.add(&qp, &events, device.name());
        let connection = Self {
            qp,
            events: events.clone(),
            ticker,
            owner,
            file: KBox::pin_init(new_mutex!(file, "Connection::file"), GFP_KERNEL)?,
            fates: door.board.fates().clone(),
        };
        connection.ticker.start(&connection.qp);
        let thresholds = &events.agreed.thresholds;
        trace::accepted(
            &peer,
            device.name(),
            thresholds.call,
            thresholds.reply,
            reads.into(),
        );
        // The client may send messages from now on.
        id.accept(&AcceptParam {
            private_data: events.agreed.private_data,
            reads,
        })?;
        events.ending().accepted(inbox.handle());
        Ok((
            Accepted {
                connection,
                inbox,
                line,
                local,
                peer,
            },
            device,
        ))
    }

    /// Ends the connection, and writes the cause to the log.
    pub(crate) fn detach(&self) {
        // This call records the cause "the RPC server ends the connection", unless another cause
        // was recorded before.
        self.events.end(Cause::Stopped);
        self.end();
        let cause = self.events.ending().cause();
        self.fates.ended(cause);
        trace::closed(&self.events.peer, cause.text());
        if self.events.may_log() {
            // LOG: A connection has ended. The table of causes explains the cause.
            pr_info!(
                "connection from {} closed: {}\n",
                Show(&self.events.peer),
                cause.text()
            );
        }
    }

    /// Destroys the queue pair of the connection. Afterwards no completion handler runs.
    /// Idempotent. May sleep.
    fn end(&self) {
        self.ticker.stop();
        let file = self.file.lock().take();
        drop(file);
        let owner = self.owner.lock().take();
        Handler::give_up(&self.qp, owner);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end();
    }
}
