// SPDX-License-Identifier: GPL-2.0

//! The state that all transports share while the class is registered ([`Common`]).

use crate::{
    servers::{
        Server,
        Servers, //
    },
    settings::{
        Check,
        Setting,
        Settings, //
    }, //
};
use core::{
    any::Any,
    net::SocketAddr, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        global_lock,
        Arc,
        Mutex, //
    },
};
use xprtrdma_base::{
    debugfs::Dir,
    init_once::InitOnce,
    net::Net,
    queue::WorkQueue, //
};

/// The work queues, the debugfs directory, the state that is kept for each server, and the settings
/// of namespaces.
#[pin_data]
pub struct Common {
    queue: WorkQueue,
    completions: WorkQueue,
    ends: WorkQueue,
    looks: WorkQueue,
    debugfs: Arc<Dir>,
    servers: Arc<Servers>,
    /// `None` once the class is unregistered; a thread may still hold a reference to this object
    /// then.
    #[pin]
    settings: Mutex<Option<Settings>>,
}

impl Common {
    /// The work queue for all other work; safe under memory reclaim.
    pub fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    /// The work queue of completions, for which work on [`Common::queue`] may wait; it has a
    /// rescuer of its own.
    pub fn completions(&self) -> &WorkQueue {
        &self.completions
    }

    /// The work queue on which connections end, with a rescuer of its own: what is done there waits
    /// for the device and for [`Common::completions`], never for memory of a request or for the RPC
    /// client.
    ///
    /// Tasks wait for the end of their connection, also on the RPC client's queues and perhaps with
    /// the send lock. When memory is short a queue may have no worker but its rescuer. So
    /// connections do not end on
    ///
    /// - the RPC client's queues: their rescuer may be waiting for this end,
    /// - [`Common::queue`]: its rescuer may be connecting for a minute, or waiting for memory that
    ///   only the end of such a task frees,
    /// - [`Common::completions`]: an end waits for work there.
    pub fn ends(&self) -> &WorkQueue {
        &self.ends
    }

    /// The work queue for looks at connections, with a rescuer of its own.
    ///
    /// A connection that is about to move takes no calls, and only such a look ends that state. It
    /// cannot wait behind the attempts on [`Common::queue`], each of which may take a minute; nor
    /// is it work for [`Common::ends`], for it asks for memory.
    pub fn looks(&self) -> &WorkQueue {
        &self.looks
    }

    /// Returns a share in the state that the transports of the server with this address have in
    /// common. It is `fresh` if no other share exists. `ENOMEM`. Does not sleep.
    pub fn server<T>(&self, net: &Net, peer: SocketAddr, fresh: Arc<T>) -> Result<Server<T>>
    where
        T: Any + Send + Sync,
    {
        Server::new(&self.servers, net.number(), peer, fresh)
    }

    /// Calls `f` with the present text of a setting of the namespace; `f` must not read a setting.
    /// The text is empty if the class is not registered any more. May sleep.
    pub fn setting<R>(&self, net: &Net, setting: Setting, f: impl FnOnce(&str) -> R) -> R {
        match &*self.settings.lock() {
            Some(settings) => settings.read(net, setting, f),
            None => f(""),
        }
    }

    /// Returns a number that changes with every change of a setting of the namespace. May sleep.
    pub fn setting_changes(&self, net: &Net) -> u32 {
        let settings = self.settings.lock();
        settings
            .as_ref()
            .map_or(0, |settings| settings.changes(net))
    }

    /// The debugfs directory. Without debugfs it is a directory without files.
    pub fn debugfs(&self) -> &Arc<Dir> {
        &self.debugfs
    }
}

global_lock! {
    // SAFETY: Initialised by `Owner::new` before `READY` is done, which `get` waits for.
    unsafe(uninit) static COMMON: Mutex<Option<Arc<Common>>> = None;
}

static READY: InitOnce = InitOnce::new();

/// The shared state for a new transport; `ENODEV` when the class is not registered. May sleep.
///
/// The RPC client passes nothing of ours to the set-up function of a class, so there must be a
/// place where that finds it. No other code looks here.
pub(crate) fn get() -> Result<Arc<Common>> {
    if !READY.is_done() {
        return Err(ENODEV);
    }
    COMMON.lock().clone().ok_or(ENODEV)
}

/// The owner of the shared state. Dropping it waits for all work on the queues.
pub(crate) struct Owner(Arc<Common>);

impl Owner {
    /// Makes the shared state. `EBUSY`: it exists already. Sleeps.
    pub(crate) fn new<C: Check>() -> Result<Self> {
        // SAFETY: `READY` calls this once, before it is done.
        READY.call(|| unsafe { COMMON.init() })?;
        let mut place = COMMON.lock();
        if place.is_some() {
            return Err(EBUSY);
        }
        let common = try_pin_init!(Common {
            queue: WorkQueue::new(c"xprtrdma_rs")?,
            completions: WorkQueue::new(c"xprtrdma_rs-comp")?,
            ends: WorkQueue::new(c"xprtrdma_rs-end")?,
            looks: WorkQueue::new(c"xprtrdma_rs-look")?,
            debugfs: Dir::new(c"xprtrdma_rs")?,
            servers: Servers::new()?,
            settings <- new_mutex!(Some(Settings::register::<C>()?), "Common::settings"),
        });
        let common = Arc::pin_init(common, GFP_KERNEL)?;
        *place = Some(common.clone());
        Ok(Self(common))
    }

    /// The shared state.
    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(COMMON.lock().take());
        // Dropped here and not with the last reference, as the next class registers settings of its
        // own.
        let settings = self.0.settings.lock().take();
        drop(settings);
        // The transports are gone, so nothing is enqueued any more. But the last work item of a
        // transport may still be ending, with a reference to this object. Its code must not be
        // unloaded before it ends, and it must not destroy the queue on which it runs.
        self.0.queue.flush();
        self.0.ends.flush();
        self.0.looks.flush();
    }
}
