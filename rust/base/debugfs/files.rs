// SPDX-License-Identifier: GPL-2.0

//! Owned directories and files of debugfs. C code of this module creates them.

use super::{
    Show,
    Write, //
};
use core::{
    fmt,
    mem::ManuallyDrop, //
};
use kernel::{
    bindings::{
        dentry,
        seq_file, //
    },
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use xprtrdma_bindings as bindings;

/// A directory in debugfs. In a kernel without debugfs, the directory and everything made in it
/// have no effect.
///
/// # Invariants
///
/// `dentry` is what `debugfs_create_dir` returned: a directory that exists until `drop`, or an
/// error.
pub struct Dir {
    dentry: *mut dentry,
    // Removing a directory removes everything in it, so the parent must live longer than its
    // children.
    _parent: Option<Arc<Dir>>,
}

// SAFETY: debugfs does its own locking.
unsafe impl Send for Dir {}

// SAFETY: debugfs does its own locking.
unsafe impl Sync for Dir {}

impl Dir {
    /// Creates a directory in the root of debugfs. Returns `ENOMEM` if memory is short. May sleep.
    pub fn new(name: &CStr) -> Result<Arc<Self>> {
        Self::make(name, core::ptr::null_mut(), None)
    }

    /// Creates a directory in this directory. Returns `ENOMEM` if memory is short. May sleep.
    pub fn subdir(self: &Arc<Self>, name: &CStr) -> Result<Arc<Self>> {
        Self::make(name, self.dentry, Some(self.clone()))
    }

    fn make(name: &CStr, parent: *mut dentry, keep: Option<Arc<Self>>) -> Result<Arc<Self>> {
        // SAFETY: The name ends with a NUL. The parent is null (the root) or, by the type
        // invariant, an existing directory or an error.
        let dentry = unsafe { bindings::xprtrdma_debugfs_dir(name.as_char_ptr(), parent) };
        // INVARIANT: `debugfs_create_dir` has just returned `dentry`. If no memory is left for the
        // `Arc`, `dir` is dropped.
        let dir = Self {
            dentry,
            _parent: keep,
        };
        Ok(Arc::new(dir, GFP_KERNEL)?)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the entry exists or is an error. It is not used again.
        unsafe { bindings::xprtrdma_debugfs_remove(self.dentry) };
    }
}

/// The data of a file. `raw` must be the first field, so that a pointer to `raw` also points to the
/// `Content`.
#[repr(C)]
struct Content<T> {
    raw: bindings::xprtrdma_file,
    data: T,
    show: Option<Show<T>>,
    write: Option<Write<T>>,
}

/// A file in debugfs. Dropping it waits until no read or write is in progress, but not until the
/// file is closed.
///
/// The data may borrow only from objects that exist for ever, because a file that is never dropped
/// is never removed.
///
/// # Invariants
///
/// `dentry` is what `debugfs_create_file` returned for `content`: a file that exists until `drop`,
/// or an error.
pub struct File<T: 'static> {
    dentry: *mut dentry,
    content: ManuallyDrop<Arc<Content<T>>>,
    _dir: Arc<Dir>,
}

// SAFETY: debugfs does its own locking, and the threads that read or write the file only get a
// `&T`.
unsafe impl<T: Send + Sync + 'static> Send for File<T> {}

// SAFETY: debugfs does its own locking, and the threads that read or write the file only get a
// `&T`.
unsafe impl<T: Send + Sync + 'static> Sync for File<T> {}

impl<T: Send + Sync + 'static> File<T> {
    /// Creates a file that only root can access. The file is readable if `show` is given, and
    /// writable if `write` is given. Returns `ENOMEM` if memory is short. May sleep.
    pub fn new(
        dir: &Arc<Dir>,
        name: &CStr,
        data: T,
        show: Option<Show<T>>,
        write: Option<Write<T>>,
    ) -> Result<Self> {
        let content = Content {
            raw: bindings::xprtrdma_file {
                show: show.is_some().then_some(show_raw::<T>),
                write: write.is_some().then_some(write_raw::<T>),
            },
            data,
            show,
            write,
        };
        let content = Arc::new(content, GFP_KERNEL)?;
        // SAFETY: The name ends with a NUL. The directory exists or is an error. The content does
        // not move before `drop` has removed the file.
        // CAST: `Content` begins with `raw`.
        let dentry = unsafe {
            bindings::xprtrdma_debugfs_file(
                name.as_char_ptr(),
                dir.dentry,
                Arc::as_ptr(&content).cast(),
            )
        };
        // INVARIANT: `debugfs_create_file` has just returned the entry for `content`.
        Ok(Self {
            dentry,
            content: ManuallyDrop::new(content),
            _dir: dir.clone(),
        })
    }
}

impl<T: 'static> Drop for File<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the entry exists or is an error. The entry is not used
        // again. `_dir` keeps the directory.
        unsafe { bindings::xprtrdma_debugfs_remove(self.dentry) };
        // SAFETY: The content is dropped only here. After the removal no callback uses it.
        unsafe { ManuallyDrop::drop(&mut self.content) };
    }
}

/// Prints the text that a [`Show`] function writes.
struct Shown<'a, T>(&'a T, Show<T>);

impl<T> kernel::fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

/// # Safety
///
/// `file` is the first field of a `Content<T>` that does not change during the call. `seq` is
/// valid, and only the caller uses it.
unsafe extern "C" fn show_raw<T>(
    file: *const bindings::xprtrdma_file,
    seq: *mut seq_file,
) -> c_int {
    // SAFETY: By this function's contract `file` points to a `Content<T>`.
    // CAST: `Content` begins with `raw`.
    let content = unsafe { &*file.cast::<Content<T>>() };
    // SAFETY: By this function's contract `seq` is valid, and only the caller uses it.
    let seq = unsafe { SeqFile::from_raw(seq) };
    if let Some(show) = content.show {
        seq_print!(seq, "{}", Shown(&content.data, show));
    }
    0
}

/// # Safety
///
/// `file` is the first field of a `Content<T>` that does not change during the call.
unsafe extern "C" fn write_raw<T>(
    file: *const bindings::xprtrdma_file,
    from: *mut c_void,
    len: usize,
) -> isize {
    // SAFETY: By this function's contract `file` points to a `Content<T>`.
    // CAST: `Content` begins with `raw`.
    let content = unsafe { &*file.cast::<Content<T>>() };
    let mut reader = UserSlice::new(UserPtr::from_ptr(from), len).reader();
    let result = match content.write {
        Some(write) => write(&content.data, &mut reader),
        None => Err(EINVAL),
    };
    match result {
        // CAST: The length of a buffer in memory is less than `isize::MAX`.
        Ok(()) => len as isize,
        Err(e) => e.to_errno() as isize,
    }
}
