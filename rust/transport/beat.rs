// SPDX-License-Identifier: GPL-2.0

//! Looks after a connection that is silent ([`Beat`]).
//!
//! A reliable connection does not notice a dead peer as long as nothing is sent. So somebody looks
//! from time to time; the connection machine decides whether to ask the peer for a sign of life,
//! and whether to give it up.

use crate::client::Client;
use kernel::{
    impl_has_delayed_work, new_delayed_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        DelayedWork,
        WorkItem, //
    },
};
use xprtrdma_sunrpc::{
    common::Common,
    util::{
        Jiffies,
        NoFs, //
    },
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// See the module's documentation. Made with a connection, cancelled before its end.
#[pin_data]
pub(crate) struct Beat {
    xprt: BackRef<Client>,
    common: Arc<Common>,
    #[pin]
    work: DelayedWork<Beat>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Beat { self.work }
}

impl Beat {
    /// Makes one that sleeps. May sleep.
    pub(crate) fn new(xprt: &Xprt<Client>, common: &Arc<Common>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                xprt: xprt.back_ref(),
                common: common.clone(),
                work <- new_delayed_work!("Beat::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Looks at the connection in `ms` milliseconds.
    pub(crate) fn after(self: Arc<Self>, ms: u32) {
        let delay = Jiffies::from_ms(ms).count().max(1);
        let common = self.common.clone();
        // An error means that it is being cancelled, or will look soon anyway.
        let _ = common.queue().queue().enqueue_delayed(self, delay);
    }
}

impl WorkItem for Beat {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // It gives regions back, and whoever closes the connection waits for it.
        let _nofs = NoFs::enter();
        if let Some(ms) = this.xprt.data().link.tick(&this.xprt) {
            this.after(ms);
        }
    }
}
