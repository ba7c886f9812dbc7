// SPDX-License-Identifier: GPL-2.0

//! What an administrator can see.

pub(crate) mod debugfs;
pub(crate) mod mountstats;

use crate::{
    counters::Tally,
    driver::Rdma, //
};
use xprtrdma_sunrpc::xprt::Xprt;

/// What the calls of all slots have moved.
fn moved(xprt: &Xprt<Rdma>) -> Tally {
    let mut sum = Tally::default();
    for slot in xprt.slots() {
        sum.add(&slot.driver_data().tally());
    }
    sum
}
