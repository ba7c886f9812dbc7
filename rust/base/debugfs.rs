// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs that keep the module while they are open.
//!
//! debugfs runs the release function of an open file also after the file was removed, with the
//! module perhaps gone. The files of [`kernel::debugfs`] have no owner, so `rmmod` succeeds while
//! one is open, and the `close` that follows runs freed code. These have one: `rmmod` says that
//! the module is in use.
//!
//! # Examples
//!
//! ```
//! # use kernel::prelude::*;
//! # use xprtrdma_base::debugfs::{Dir, File};
//! let dir = Dir::new(c"example")?;
//! let answer = File::new(&dir, c"answer", 42u32, Some(|n, f| write!(f, "{n}\n")), None)?;
//! // Removes the file, then the directory.
//! drop(answer);
//! # Ok::<(), Error>(())
//! ```

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
        UserSlice,
        UserSliceReader, //
    }, //
};
use xprtrdma_bindings as bindings;

/// Writes the content of a file. Runs in a reader's task and may sleep.
pub type Show<T> = fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result;

/// Handles what was written to a file. Runs in a writer's task and may sleep.
pub type Write<T> = fn(&T, &mut UserSliceReader) -> Result;

/// A directory. Without debugfs it has no effect, nor have directories and files that are made in
/// it.
///
/// # Invariants
///
/// `dentry` is what `debugfs_create_dir` returned: a directory that exists until `drop`, or an
/// error.
pub struct Dir {
    dentry: *mut dentry,
    // Removing a directory removes all that it contains, so the parent lives longer.
    _parent: Option<Arc<Dir>>,
}

// SAFETY: debugfs has locks of its own.
unsafe impl Send for Dir {}

// SAFETY: As above.
unsafe impl Sync for Dir {}

impl Dir {
    /// Makes a directory in the root of debugfs. `ENOMEM`. Sleeps.
    pub fn new(name: &CStr) -> Result<Arc<Self>> {
        Self::make(name, core::ptr::null_mut(), None)
    }

    /// Makes a directory in this one. `ENOMEM`. Sleeps.
    pub fn subdir(self: &Arc<Self>, name: &CStr) -> Result<Arc<Self>> {
        Self::make(name, self.dentry, Some(self.clone()))
    }

    fn make(name: &CStr, parent: *mut dentry, keep: Option<Arc<Self>>) -> Result<Arc<Self>> {
        // SAFETY: The name ends with a NUL; the parent is the root, or a directory that exists or
        // an error by the type invariant.
        let dentry = unsafe { bindings::xprtrdma_debugfs_dir(name.as_char_ptr(), parent) };
        // INVARIANT: It was returned just now. If there is no memory for the object, it is dropped.
        let dir = Self {
            dentry,
            _parent: keep,
        };
        Ok(Arc::new(dir, GFP_KERNEL)?)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; it is not used again.
        unsafe { bindings::xprtrdma_debugfs_remove(self.dentry) };
    }
}

/// The data that the file operations reach. `raw` comes first, so that a pointer to it is a pointer
/// to the whole.
#[repr(C)]
struct Content<T> {
    raw: bindings::xprtrdma_file,
    data: T,
    show: Option<Show<T>>,
    write: Option<Write<T>>,
}

/// A file. Dropping it waits for readers and writers, but not until the file is closed.
///
/// # Invariants
///
/// `dentry` is what `debugfs_create_file` returned for `content`: a file that exists until `drop`,
/// or an error.
pub struct File<T> {
    dentry: *mut dentry,
    content: ManuallyDrop<Arc<Content<T>>>,
    _dir: Arc<Dir>,
}

// SAFETY: debugfs has locks of its own, and readers in any thread have a `&T` only.
unsafe impl<T: Send + Sync> Send for File<T> {}

// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for File<T> {}

impl<T: Send + Sync> File<T> {
    /// Makes a file for root in a directory. It can be read if there is a `show`, and written if
    /// there is a `write`. `ENOMEM`. Sleeps.
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
        // SAFETY: The name ends with a NUL, the directory exists or is an error, and the content
        // stays where it is until `drop` has removed the file. CAST: `Content` begins with it.
        let dentry = unsafe {
            bindings::xprtrdma_debugfs_file(
                name.as_char_ptr(),
                dir.dentry,
                Arc::as_ptr(&content).cast(),
            )
        };
        // INVARIANT: It was returned just now.
        Ok(Self {
            dentry,
            content: ManuallyDrop::new(content),
            _dir: dir.clone(),
        })
    }
}

impl<T> Drop for File<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; it is not used again. The directory exists still.
        unsafe { bindings::xprtrdma_debugfs_remove(self.dentry) };
        // SAFETY: Dropped once, here. No callback runs behind the removal.
        unsafe { ManuallyDrop::drop(&mut self.content) };
    }
}

/// The text that a [`Show`] writes, for printing.
struct Shown<'a, T>(&'a T, Show<T>);

impl<T> kernel::fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.1)(self.0, f)
    }
}

/// # Safety
///
/// `file` begins a `Content<T>` that is not changed; `seq` is valid and the caller's alone.
unsafe extern "C" fn show_raw<T>(
    file: *const bindings::xprtrdma_file,
    seq: *mut seq_file,
) -> c_int {
    // SAFETY: By this function's contract. CAST: `Content` begins with it.
    let content = unsafe { &*file.cast::<Content<T>>() };
    // SAFETY: By this function's contract.
    let seq = unsafe { SeqFile::from_raw(seq) };
    if let Some(show) = content.show {
        seq_print!(seq, "{}", Shown(&content.data, show));
    }
    0
}

/// # Safety
///
/// `file` begins a `Content<T>` that is not changed.
unsafe extern "C" fn write_raw<T>(
    file: *const bindings::xprtrdma_file,
    from: *mut c_void,
    len: usize,
) -> isize {
    // SAFETY: By this function's contract. CAST: `Content` begins with it.
    let content = unsafe { &*file.cast::<Content<T>>() };
    let mut reader = UserSlice::new(UserPtr::from_ptr(from), len).reader();
    let result = match content.write {
        Some(write) => write(&content.data, &mut reader),
        None => Err(EINVAL),
    };
    match result {
        // CAST: A length of memory.
        Ok(()) => len as isize,
        Err(e) => e.to_errno() as isize,
    }
}
