// SPDX-License-Identifier: GPL-2.0

//! Files and statistics for administrators.

pub(crate) mod debugfs;
pub(crate) mod mountstats;

use crate::{
    counters::Tally,
    driver::Rdma, //
};
use xprtrdma_sunrpc::xprt::Xprt;

/// Returns the total amounts of data that the calls of all slots have transferred.
fn moved(xprt: &Xprt<Rdma>) -> Tally {
    let mut sum = Tally::default();
    for slot in xprt.slots() {
        sum.add(&slot.driver_data().tally());
    }
    sum
}
