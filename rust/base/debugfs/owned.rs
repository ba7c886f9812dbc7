// SPDX-License-Identifier: GPL-2.0

//! The version of the module [`files`](super) for a kernel with patch 0007
//! (`Documentation/upstream`). In such a kernel the files of [`kernel::debugfs`] have an owner.
//! Here the owner is this kernel module.

use super::{
    Show,
    Write, //
};
use core::fmt;
use kernel::{
    debugfs,
    prelude::*,
    sync::Arc,
    types::Opaque,
    uaccess::UserSliceReader,
    ModuleMetadata, //
};

/// Represents this kernel module as the owner of the files.
enum Owner {}

impl ModuleMetadata for Owner {
    const NAME: &'static CStr = crate::NAME;

    const THIS_MODULE: ThisModule = {
        #[expect(improper_ctypes)]
        extern "C" {
            static __this_module: Opaque<kernel::bindings::module>;
        }
        // SAFETY: The kernel creates `__this_module` when it loads the module, and keeps the object
        // until it has unloaded the module.
        unsafe { ThisModule::from_ptr(__this_module.get()) }
    };
}

/// A directory in debugfs. In a kernel without debugfs, the directory and everything made in it
/// have no effect.
pub struct Dir(debugfs::Dir<Owner>);

impl Dir {
    /// Makes a directory in the root of debugfs. Returns `ENOMEM` if memory is short. May sleep.
    pub fn new(name: &CStr) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(debugfs::Dir::of_module(name)), GFP_KERNEL)?)
    }

    /// Makes a directory in this directory. Returns `ENOMEM` if memory is short. May sleep.
    pub fn subdir(self: &Arc<Self>, name: &CStr) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(self.0.subdir(name)), GFP_KERNEL)?)
    }
}

/// The data of a file, and the functions that read and write it.
struct Content<T> {
    data: T,
    show: Option<Show<T>>,
    write: Option<Write<T>>,
}

impl<T> Content<T> {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show.map_or(Ok(()), |show| show(&self.data, f))
    }

    fn write(&self, from: &mut UserSliceReader) -> Result {
        self.write
            .map_or(Err(EINVAL), |write| write(&self.data, from))
    }
}

/// A file in debugfs. The drop waits until no read or write is in progress, but not until the file
/// is closed.
pub struct File<T: 'static> {
    _file: Pin<KBox<debugfs::File<Content<T>>>>,
}

impl<T: Send + Sync> File<T> {
    /// Makes a file that only root can access. The file is readable if `show` is given, and
    /// writable if `write` is given. Returns `ENOMEM` if memory is short. May sleep.
    pub fn new(
        dir: &Arc<Dir>,
        name: &CStr,
        data: T,
        show: Option<Show<T>>,
        write: Option<Write<T>>,
    ) -> Result<Self> {
        let dir = &dir.0;
        let content = Content { data, show, write };
        let (show, write) = (&Content::<T>::show, &Content::<T>::write);
        let file = match content {
            Content { write: None, .. } => {
                KBox::pin_init(dir.read_callback_file(name, content, show), GFP_KERNEL)
            }
            Content { show: None, .. } => {
                KBox::pin_init(dir.write_callback_file(name, content, write), GFP_KERNEL)
            }
            _ => {
                let file = dir.read_write_callback_file(name, content, show, write);
                KBox::pin_init(file, GFP_KERNEL)
            }
        };
        Ok(Self { _file: file? })
    }
}
