// SPDX-License-Identifier: GPL-2.0

//! The module's directory in debugfs, which exists while the module's transport classes are
//! registered.

use kernel::{
    prelude::*,
    sync::{
        global_lock,
        Arc, //
    }, //
};
use xprtrdma_base::{
    debugfs::Dir,
    init_once::InitOnce,
    NAME, //
};

global_lock! {
    // SAFETY: `READY` is marked as done only after `Owner::new` has initialised the lock, and
    // `files` checks `READY` before it uses the lock.
    unsafe(uninit) static ROOT: Mutex<Option<Arc<Dir>>> = None;
}

static READY: InitOnce = InitOnce::new();

/// Returns the directory if it exists. May sleep.
///
/// The directory is in a global variable, because the RPC server calls the functions of a transport
/// class without a pointer to this module's data.
pub fn files() -> Option<Arc<Dir>> {
    if !READY.is_done() {
        return None;
    }
    ROOT.lock().clone()
}

/// The owner of the module's directory in debugfs. Dropping this object removes the directory.
pub(crate) struct Owner(());

impl Owner {
    /// Creates the directory. Returns `EBUSY` if the directory exists. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: `READY` calls this closure once, before `READY` is done.
        READY.call(|| unsafe { ROOT.init() })?;
        let mut root = ROOT.lock();
        if root.is_some() {
            return Err(EBUSY);
        }
        *root = Some(Dir::new(NAME)?);
        Ok(Self(()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let root = ROOT.lock().take();
        drop(root);
    }
}
