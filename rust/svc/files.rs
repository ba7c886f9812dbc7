// SPDX-License-Identifier: GPL-2.0

//! The module's directory in debugfs, which exists while the module's transport classes are
//! registered.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use xprtrdma_base::{
    debugfs::Dir,
    set_in_place::SetInPlace,
    NAME, //
};

static ROOT: SetInPlace<Mutex<Option<Arc<Dir>>>> = SetInPlace::new();

/// Returns the directory if it exists. May sleep.
///
/// The directory is in a global variable, because the RPC server calls the functions of a transport
/// class without a pointer to this module's data.
pub fn files() -> Option<Arc<Dir>> {
    ROOT.get()?.lock().clone()
}

/// The owner of the module's directory in debugfs. Dropping this object removes the directory.
pub(crate) struct Owner(());

impl Owner {
    /// Creates the directory. Returns `EBUSY` if the directory exists. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut root = ROOT.set(new_mutex!(None, "files::ROOT"))?.lock();
        if root.is_some() {
            return Err(EBUSY);
        }
        *root = Some(Dir::new(NAME)?);
        Ok(Self(()))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let root = ROOT.get().and_then(|root| root.lock().take());
        drop(root);
    }
}
