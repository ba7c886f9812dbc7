// SPDX-License-Identifier: GPL-2.0

//! Tests of the time stamps of a call: start, transmission and reply.

use super::{
    driver::{
        fate,
        reply,
        Fate, //
    },
    ensure::Test,
    rpc::Alone, //
};
use crate::latency::{
    is_measured,
    measure, //
};
use kernel::prelude::*;
use xprtrdma_base::time::now_ns;

#[kunit_tests(xprtrdma_latency)]
mod suite {
    use super::*;

    #[test]
    fn the_switch_is_where_it_was_put() -> Test {
        for on in [false, true, true, false, false, true, false] {
            measure(on);
            ensure_eq!(is_measured(), on);
        }
        Ok(())
    }

    #[test]
    fn the_times_of_a_call_are_in_the_order_of_its_life() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let before = now_ns();
        let pending = client.null()?;
        client.wait_kept(1)?;
        let kept = client.xprt().data().take_kept();
        let xid = kept.first().copied().ok_or(ENOENT)?;
        let sent = now_ns();
        let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        let times = pinned.times();
        ensure!(before <= times.begun);
        ensure!(times.begun <= times.given);
        ensure!(times.given <= sent);
        ensure!(sent <= times.answered);
        ensure!(times.answered <= now_ns());
        let answer = reply(xid, &[])?;
        pinned.place_inline(&answer)?;
        pinned.complete(answer.len()).map_err(|_| EBUSY)?;
        pending.wait()?;
        client.end()
    }
}
