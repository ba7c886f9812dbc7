// SPDX-License-Identifier: GPL-2.0

//! What an administrator can see.

pub(crate) mod debugfs;
pub(crate) mod mountstats;
