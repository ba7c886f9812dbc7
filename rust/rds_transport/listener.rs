// SPDX-License-Identifier: GPL-2.0

//! Connection requests from peers ([`Doorway`]).

use crate::{
    driver::Rds,
    endpoint::Endpoint,
    events::Events,
    service::has_usable_device,
    sizes::REQUESTS, //
};
use core::net::SocketAddr;
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use xprtrdma_rdma::cm::listen::{
    ListenHandler,
    Listener,
    Request,
    RequestInfo, //
};
use xprtrdma_rds::{
    connection::State,
    events::Event,
    registration::Registration,
    util::{
        init_net,
        may_log,
        not_connected,
        protocol_error,
        Show, //
    }, //
};
use xprtrdma_rds_proto::connect::{
    accept,
    Crowd, //
};

/// The handler of connection requests at one port.
pub(crate) struct Door(Arc<Requests>);

/// The connection requests at one port, and the work item that accepts them.
#[pin_data]
struct Requests {
    registration: Arc<Registration<Rds>>,
    driver: Arc<Rds>,
    #[pin]
    listener: Mutex<Option<Listener<Door>>>,
    #[pin]
    work: Work<Requests>,
}

impl_has_work! {
    impl HasWork<Self> for Requests { self.work }
}

impl ListenHandler for Door {
    type Events = Events;

    fn request(&self, request: &RequestInfo<'_>) -> Option<Arc<Events>> {
        Events::passive(request).ok()
    }

    fn arrived(&self) {
        // The call fails only if the work item is already queued and has not started.
        let _ = self.0.driver.accepts.queue().enqueue(self.0.clone());
    }
}

impl WorkItem for Requests {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        loop {
            let listener = this.listener.lock();
            let request = listener.as_ref().and_then(Listener::take);
            drop(listener);
            let Some(request) = request else {
                return;
            };
            let peer = request.events.peer;
            if let Err(error) = this.accept(request) {
                // `EBUSY` means that one of the two ends will connect again. So the failure is not
                // logged.
                if error == EBUSY {
                    continue;
                }
                if let (true, Some(peer)) = (may_log(), peer) {
                    // LOG: The connection could not be made; the error says why. `EMFILE`: too
                    // many peers have connected since the module was loaded.
                    pr_info!("connection from {} not accepted: {error:?}\n", Show(&peer));
                }
            }
        }
    }
}

impl Requests {
    fn accept(&self, request: Request<Door>) -> Result {
        let Request { id, events } = request;
        // The listener also receives requests on devices that the driver cannot use. Without this
        // check, each such request would create a connection, which exists until the module is
        // unloaded.
        if !has_usable_device(&id) {
            return Err(ENODEV);
        }
        let local = id.local_addr().ok_or(EINVAL)?.ip();
        let peer = events.peer.ok_or(EINVAL)?;
        let hello = accept(events.data().bytes(), local, peer).map_err(|_| protocol_error())?;
        let (known, of_peer, in_all) = self.registration.count(local, peer, hello.tos);
        let crowd = Crowd {
            known,
            of_peer,
            in_all,
        };
        if !crowd.has_room() {
            return Err(EMFILE);
        }
        let connection = self.registration.find((local, peer, hello.tos), known)?;
        let entered = connection.enter().ok_or_else(not_connected)?;
        if !entered.begin_connecting() {
            match entered.state() {
                State::Up => {
                    // The peer's request shows that the peer no longer has this connection. So this
                    // end disconnects as well. The peer will send its request again.
                    Event::StaleConnection.count();
                    entered.drop_path();
                }
                // Both ends connect at the same time. The connection attempt of this end will
                // succeed or be repeated.
                State::Connecting => Event::ConnectRaced.count(),
                State::Down | State::Ending => {}
            }
            return Err(EBUSY);
        }
        // The lock is taken only after the state was checked. Otherwise both ends could wait for
        // each other: a thread that connects to the peer holds this lock until the peer answers,
        // and the peer may first wait for the answer to the request that is handled here.
        let mut place = connection.data().endpoint.lock();
        // RDS may have shut the connection down before this thread took the lock.
        let former = place.take();
        connection.data().end(former);
        if entered.state() != State::Connecting {
            return Err(EBUSY);
        }
        match Endpoint::accept(&connection, id, events, &hello) {
            Ok(endpoint) => {
                *place = Some(endpoint);
                Ok(())
            }
            Err(error) => {
                connection.data().end(None);
                entered.drop_path();
                Err(error)
            }
        }
    }
}

/// A port at which peers connect. Dropping this object waits until no connection request is being
/// handled.
pub(crate) struct Doorway(Arc<Requests>);

impl Doorway {
    /// Listens at an address of the initial network namespace. May sleep.
    pub(crate) fn open(
        addr: &SocketAddr,
        registration: &Arc<Registration<Rds>>,
        driver: &Arc<Rds>,
    ) -> Result<Self> {
        let requests = Arc::pin_init(
            pin_init!(Requests {
                registration: registration.clone(),
                driver: driver.clone(),
                listener <- new_mutex!(None, "Requests::listener"),
                work <- new_work!("Requests::work"),
            }),
            GFP_KERNEL,
        )?;
        let door = Door(requests.clone());
        let listener = Listener::new(init_net(), addr, REQUESTS, door)?;
        *requests.listener.lock() = Some(listener);
        // Requests may have arrived before the listener was stored. The work item handles these
        // requests.
        let _ = driver.accepts.queue().enqueue(requests.clone());
        Ok(Self(requests))
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        let listener = self.0.listener.lock().take();
        // Dropping the listener also drops the listener's handler, which holds a reference to
        // `Requests`.
        drop(listener);
        self.0.driver.accepts.flush();
    }
}
