// SPDX-License-Identifier: GPL-2.0

//! The state that all transports share while the transport class is registered ([`Common`]).

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
        Arc,
        Mutex, //
    },
};
use xprtrdma_base::{
    debugfs::Dir,
    net::Net,
    queue::WorkQueue,
    set_in_place::SetInPlace, //
};

/// The state that all transports share: the work queues, the debugfs directory, the shared state
/// for each server, and the settings of network namespaces.
#[pin_data]
pub struct Common {
    queue: WorkQueue,
    completions: WorkQueue,
    ends: WorkQueue,
    looks: WorkQueue,
    debugfs: Arc<Dir>,
    servers: Arc<Servers>,
    /// The settings; `None` after the class is unregistered. This object may still exist at that
    /// time, because threads may hold references to it.
    #[pin]
    settings: Mutex<Option<Settings>>,
}

impl Common {
    /// Returns the work queue for all work that needs no special queue. The queue makes progress
    /// even while the kernel reclaims memory.
    pub fn queue(&self) -> &WorkQueue {
        &self.queue
    }

    /// Returns the work queue for completions. It has its own rescuer, because work on
    /// [`Common::queue`] may wait for completions.
    pub fn completions(&self) -> &WorkQueue {
        &self.completions
    }

    /// Returns the work queue that closes connections. It has its own rescuer. Closing a connection
    /// waits for the device and for [`Common::completions`]. It never waits for the RPC client, or
    /// for memory that a request holds.
    ///
    /// Tasks wait until their connection is closed. Such a task may occupy a worker of the RPC
    /// client's queues, and may hold the send lock. When memory is short, the rescuer may be the
    /// only worker of a queue. So connections are not closed on other queues:
    ///
    /// - The RPC client's queues: their rescuer may be waiting for this very connection to close.
    /// - [`Common::queue`]: its rescuer may spend a minute connecting, or may be waiting for memory
    ///   that is freed only when such a task ends.
    /// - [`Common::completions`]: closing a connection waits for work on that queue.
    pub fn ends(&self) -> &WorkQueue {
        &self.ends
    }

    /// Returns the work queue that checks connections periodically. It has its own rescuer.
    ///
    /// A connection that is about to move to another network path accepts no calls. Only a periodic
    /// check ends this state. The checks need their own queue for two reasons:
    ///
    /// - On [`Common::queue`] a check would wait behind connection attempts, and each attempt may
    ///   take a minute.
    /// - On [`Common::ends`] a check must not run, because it allocates memory.
    pub fn looks(&self) -> &WorkQueue {
        &self.looks
    }

    /// Returns a handle to the state that all transports to the server at this address share. If no
    /// other handle exists, the state is the object `fresh`. Returns `ENOMEM` if no memory is
    /// available. Does not sleep.
    pub fn server<T>(&self, net: &Net, peer: SocketAddr, fresh: Arc<T>) -> Result<Server<T>>
    where
        T: Any + Send + Sync,
    {
        Server::new(&self.servers, net.number(), peer, fresh)
    }

    /// Calls `f` with the current text of a setting of the network namespace. `f` must not read a
    /// setting. The text is empty if this transport class is no longer registered. May sleep.
    pub fn setting<R>(&self, net: &Net, setting: Setting, f: impl FnOnce(&str) -> R) -> R {
        match &*self.settings.lock() {
            Some(settings) => settings.read(net, setting, f),
            None => f(""),
        }
    }

    /// Returns a number that changes with each change of a setting of the network namespace. May
    /// sleep.
    pub fn setting_changes(&self, net: &Net) -> u32 {
        let settings = self.settings.lock();
        settings
            .as_ref()
            .map_or(0, |settings| settings.changes(net))
    }

    /// Returns the module's debugfs directory. In a kernel without debugfs no files are created in
    /// the directory.
    pub fn debugfs(&self) -> &Arc<Dir> {
        &self.debugfs
    }
}

static COMMON: SetInPlace<Mutex<Option<Arc<Common>>>> = SetInPlace::new();

/// Returns the shared state for a new transport, or `ENODEV` if the class is not registered. May
/// sleep.
///
/// The RPC client passes no private pointer to the function that sets up a transport. So the shared
/// state is in a global variable. The variable has no other purpose.
pub(crate) fn get() -> Result<Arc<Common>> {
    let common = COMMON.get().ok_or(ENODEV)?.lock().clone();
    common.ok_or(ENODEV)
}

/// The owner of the shared state. Dropping it waits for all work on the queues.
pub(crate) struct Owner(Arc<Common>);

impl Owner {
    /// Creates the shared state. Returns `EBUSY` if the shared state exists already. May sleep.
    pub(crate) fn new<C: Check>() -> Result<Self> {
        let mut place = COMMON.set(new_mutex!(None, "common::COMMON"))?.lock();
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

    /// Returns the shared state.
    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let common = COMMON.get().and_then(|place| place.lock().take());
        drop(common);
        // The settings are unregistered here, and not when the last reference to `Common` is
        // dropped. The next registration of a class may come earlier, and registers the settings
        // again.
        let settings = self.0.settings.lock().take();
        drop(settings);
        // All transports are gone, so no work is enqueued any more. But the last work item of a
        // transport may still be returning, with a reference to `Common`. The flushes wait for this
        // work item, for two reasons:
        //
        // - The code of the work item must not be unloaded before the work item returns.
        // - The work item must not drop the last reference to `Common`. Otherwise it would destroy
        //   the queue that it runs on.
        self.0.queue.flush();
        self.0.ends.flush();
        self.0.looks.flush();
    }
}
