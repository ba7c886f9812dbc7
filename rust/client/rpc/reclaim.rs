// SPDX-License-Identifier: GPL-2.0

//! Reclaims the regions of calls when their connection ends.

use crate::connection::Connection;

/// Takes the regions of a drained connection from every slot, and returns these regions to the
/// pool. Also returns the lent memory to its owners. Completes every call that has received its
/// reply and waits only for its regions. May sleep.
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
            // If `drained` fails, the region belongs to another connection. That connection
            // reclaims the region when it ends.
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
