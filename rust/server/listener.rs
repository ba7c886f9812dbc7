// SPDX-License-Identifier: GPL-2.0

//! Connection requests.

use crate::{
    board::Board,
    count,
    crowd::Crowd,
    events::Events,
    follow::Follower,
    sizes::REQUESTS,
    sweep::{
        Sweeper,
        Swept, //
    }, //
};
use core::{
    net::SocketAddr,
    ops::Deref,
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use xprtrdma_rdma::cm::listen::{
    self,
    ListenHandler,
    RequestInfo, //
};
use xprtrdma_svc::{
    bell::Bell,
    trace,
    util::{
        connection_reset,
        Net,
        Show,
        WorkQueue, //
    }, //
};

pub(crate) type Listener = listen::Listener<Door>;

/// The handler of connection requests that arrive at a listener.
pub(crate) struct Door {
    bell: Bell,
    /// The connections of the listener.
    crowd: Arc<Crowd>,
    /// The address of the listener.
    local: SocketAddr,
    follower: Arc<Follower>,
    /// The debugfs files of the listener.
    pub(crate) board: Board,
    /// The work queue that handles completions of the listener's connections.
    pub(crate) queue: Arc<WorkQueue>,
}

impl Swept for Listener {
    fn drop_ended(&self) {
        while let Some(request) = self.take_if(|events| events.ending().has_ended()) {
            request.events.not_accepted(connection_reset());
        }
    }
}

/// The owner of a listener.
pub(crate) struct Owner {
    listener: Arc<Listener>,
    sweeper: Arc<Sweeper>,
}

impl Deref for Owner {
    type Target = Listener;

    fn deref(&self) -> &Listener {
        &self.listener
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.sweeper.stop();
    }
}

/// Listens at an address. May sleep.
pub(crate) fn listen(net: &Net, addr: &SocketAddr, bell: Bell) -> Result<Owner> {
    // Each work queue needs a unique name, because the name appears in sysfs.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = CString::try_from_fmt(fmt!("svcrdma_rs-{number}"))?;
    let queue = Arc::new(WorkQueue::new(&name)?, GFP_KERNEL)?;
    let sweeper = Sweeper::new(queue.clone())?;
    let crowd = Crowd::new(sweeper.clone())?;
    let door = Door {
        follower: Follower::new(bell.clone(), queue.clone())?,
        bell,
        crowd,
        local: *addr,
        board: Board::new(addr)?,
        queue,
    };
    let listener = Listener::new(net, addr, REQUESTS, door)?;
    let listener = Arc::new(listener, GFP_KERNEL)?;
    sweeper.start(listener.clone());
    Ok(Owner { listener, sweeper })
}

/// Listens again if the network device of the listener's IP address has got another hardware
/// address. May sleep.
pub(crate) fn follow_address(listener: &Listener) {
    let door = listener.handler();
    if !door.follower.is_due() {
        return;
    }
    let listens = listener.listen_again();
    if door.follower.listened() {
        return;
    }
    match listens {
        // LOG: The address has moved to another hardware address, for example in a bond. The
        // listener accepts connections again.
        Ok(()) => pr_info!(
            "listening at {} again: its hardware address has changed\n",
            Show(&door.local)
        ),
        Err(error) => {
            // LOG: The listener has ended; the error says why. Make the NFS server listen again.
            pr_warn!(
                "cannot listen at {} after its hardware address has changed ({error:?}): nfsd \
                 forgets the listener\n",
                Show(&door.local)
            );
            door.bell.close();
        }
    }
}

impl Door {
    /// Rejects a connection request that waited for a thread of the RPC server.
    pub(crate) fn reject(&self, request: Option<listen::Request<Self>>) {
        if request.is_some() {
            self.board.fates().rejected();
        }
    }
}

impl ListenHandler for Door {
    type Events = Events;

    fn request(&self, request: &RequestInfo<'_>) -> Option<Arc<Events>> {
        let events = Events::of_request(request, &self.crowd);
        if events.is_none() {
            self.board.fates().rejected();
            trace::rejected(&request.peer, None);
            if self.crowd.may_log(&request.peer) {
                // LOG: The client has too many connections, or too many connections exist, and
                // none was idle for long enough to be closed. The client tries again.
                pr_info!("connection from {} rejected\n", Show(&request.peer));
            }
        }
        events
    }

    fn arrived(&self) {
        self.bell.ring();
    }

    fn turned_away(&self) {
        self.board.fates().rejected();
        count::WAITING.add();
    }

    fn removed(&self) {
        // LOG: The listener has ended. Make the NFS server listen again when the device is back.
        pr_warn!(
            "the device of the listener at {} is removed: nfsd forgets it\n",
            Show(&self.local)
        );
        self.bell.close();
    }

    fn moved(&self) {
        self.follower.moved();
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.follower.stop();
    }
}
