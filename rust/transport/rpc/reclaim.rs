// SPDX-License-Identifier: GPL-2.0

//! Calls at the end of their connection.

use crate::connection::Connection;

/// No region of a connection that is drained stays with a slot: they are deregistered, which is
/// the end of the server's access. A reply that only waited for that ends its call. Sleeps.
pub(crate) fn reclaim(conn: &Connection) {
    for slot in conn.xprt().slots() {
        let (regions, idle, answer) = {
            let mut state = slot.driver_data().state.lock();
            if state.epoch != conn.epoch() {
                continue;
            }
            (
                core::mem::take(&mut state.regions),
                core::mem::take(&mut state.idle),
                slot.driver_data().take_answer(&mut state),
            )
        };
        drop((regions, idle));
        if let Some(answer) = answer {
            answer.complete(conn.counters());
        }
    }
}
