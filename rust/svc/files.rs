// SPDX-License-Identifier: GPL-2.0

//! The module's directory in debugfs, there while the classes are registered.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        global_lock,
        Arc, //
    }, //
};
use xprtrdma_base::{
    debugfs::Dir,
    NAME, //
};

global_lock! {
    // SAFETY: Initialised by `Owner::new` before `READY` is set, which `files` waits for.
    unsafe(uninit) static ROOT: Mutex<Option<Arc<Dir>>> = None;
}

static READY: Atomic<bool> = Atomic::new(false);

/// Returns the directory, if there is one. May sleep.
///
/// The RPC server passes nothing of ours to a class, so there must be a place where it is found.
pub fn files() -> Option<Arc<Dir>> {
    // ORDERING: Pairs with the release in `Owner::new`.
    if !READY.load(Acquire) {
        return None;
    }
    ROOT.lock().clone()
}

/// The owner of the directory.
pub(crate) struct Owner(());

impl Owner {
    /// Makes the directory. `EBUSY`: there is one. May sleep.
    pub(crate) fn new() -> Result<Self> {
        static CALLED: Atomic<bool> = Atomic::new(false);
        if !CALLED.xchg(true, Full) {
            // SAFETY: The flag lets exactly one caller come here.
            unsafe { ROOT.init() };
            READY.store(true, Release);
        } else if !READY.load(Acquire) {
            // The first caller is at work.
            return Err(EBUSY);
        }
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
