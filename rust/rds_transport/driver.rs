// SPDX-License-Identifier: GPL-2.0

//! The object that represents this driver ([`Rds`]). The driver's operations are in the module
//! `service`.

use crate::table::Table;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use xprtrdma_rds::util::WorkQueue;

/// The state that all connections of the module share.
#[pin_data]
pub(crate) struct Rds {
    /// The work queue that handles completions.
    pub(crate) completions: Arc<WorkQueue>,
    /// The work queue that accepts connection requests, and that releases removed devices and some
    /// regions.
    pub(crate) accepts: WorkQueue,
    #[pin]
    pub(crate) table: Mutex<Table>,
}

impl Rds {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                completions: Arc::new(WorkQueue::new(c"rds_rdma_rs")?, GFP_KERNEL)?,
                accepts: WorkQueue::new(c"rds_rdma_rs-accept")?,
                table <- new_mutex!(Table::new(), "Rds::table"),
            }? Error),
            GFP_KERNEL,
        )
    }
}
