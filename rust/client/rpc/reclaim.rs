// SPDX-License-Identifier: GPL-2.0

//! Calls at the end of their connection.

use crate::connection::Connection;

/// Takes the regions of a drained connection from every slot: they go back to the pool, and their
/// memory to its owners. A reply that only waited for this ends its call. Sleeps.
pub(crate) fn reclaim(conn: &Connection) {
    for slot in conn.xprt().slots() {
        let (regions, kept, answer) = {
            let mut state = slot.driver_data().state.lock();
            if state.epoch != conn.epoch() {
                continue;
            }
            (
                core::mem::take(&mut state.regions),
                state.kept.take(),
                slot.driver_data().take_answer(&mut state),
            )
        };
        for region in regions {
            // A region that is not drained belongs to another connection, whose end takes it.
            if let Ok((mr, _lease)) = region.drained() {
                conn.regions().put(mr);
            }
        }
        if let Some(mr) = kept {
            conn.regions().put(mr);
        }
        if let Some(answer) = answer {
            answer.complete(conn.counters());
        }
    }
}
