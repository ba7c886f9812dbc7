// SPDX-License-Identifier: GPL-2.0

//! The module's directory in debugfs, there while the classes are registered.

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
    // SAFETY: Initialised by `Owner::new` before `READY` is done, which `files` waits for.
    unsafe(uninit) static ROOT: Mutex<Option<Arc<Dir>>> = None;
}

static READY: InitOnce = InitOnce::new();

/// Returns the directory, if there is one. May sleep.
///
/// The RPC server passes nothing of ours to a class, so there must be a place where it is found.
pub fn files() -> Option<Arc<Dir>> {
    if !READY.is_done() {
        return None;
    }
    ROOT.lock().clone()
}

/// The owner of the directory.
pub(crate) struct Owner(());

impl Owner {
    /// Makes the directory. `EBUSY`: there is one. May sleep.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: `READY` calls this once, before it is done.
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
