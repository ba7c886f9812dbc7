// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs that keep the module loaded while they are open.
//!
//! When an open file is closed, debugfs calls the file's release function, even if the file was
//! removed earlier. The files of [`kernel::debugfs`] have no owner. So `rmmod` succeeds while such
//! a file is open, and the later `close` runs freed code. The files of this module have an owner.
//! So `rmmod` reports that the module is in use.
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

// In a kernel with patch 0007 of `Documentation/upstream`, the files of [`kernel::debugfs`] have an
// owner. The module for such a kernel is `debugfs/owned.rs`.
#[cfg_attr(xprtrdma_upstream, path = "debugfs/owned.rs")]
mod files;

pub use files::{
    Dir,
    File, //
};

use core::fmt;
use kernel::{
    prelude::*,
    uaccess::UserSliceReader, //
};

/// Writes the content of a file. Runs in the task that reads the file, and may sleep.
pub type Show<T> = fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result;

/// Handles data written to a file. Runs in the task that writes to the file, and may sleep.
pub type Write<T> = fn(&T, &mut UserSliceReader) -> Result;

/// Reads `0` or `1`, with or without a newline, from what was written to a file. Returns `EINVAL`
/// for any other input. May sleep.
pub fn read_switch(reader: &mut UserSliceReader) -> Result<bool> {
    let mut text = [0u8; 2];
    let len = reader.len();
    let text = text.get_mut(..len).ok_or(EINVAL)?;
    reader.read_slice(text)?;
    match *text {
        [digit @ (b'0' | b'1')] | [digit @ (b'0' | b'1'), b'\n'] => Ok(digit == b'1'),
        _ => Err(EINVAL),
    }
}
