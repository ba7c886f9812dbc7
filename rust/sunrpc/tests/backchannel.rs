// SPDX-License-Identifier: GPL-2.0

//! Tests that compare the number of callbacks in progress on each connection with a model.

use super::{
    driver::{
        calm,
        Driver, //
    },
    ensure::Test,
    rpc::Lone, //
};
use crate::{
    backchannel::BcSlot,
    class::Registration,
    transport::Transport, //
};
use kernel::prelude::*;

const MOST: usize = Driver::CALLBACK_SLOTS as usize;

/// A callback that the callback service processes.
struct Served {
    slot: KBox<BcSlot>,
    cookie: u32,
    answered: bool,
}

/// Returns a pseudo-random number. The numbers are the same in every run.
fn roll(state: &mut u64, sides: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize % sides
}

#[kunit_tests(xprtrdma_backchannel)]
mod suite {
    use super::*;

    // covers: BC-04, BC-25, MAL-111: the server may have exactly as many calls in flight as it was
    // granted.
    #[test]
    fn calls_beyond_the_credits_find_no_slot() -> Test {
        calm();
        let class = Registration::<Driver>::new()?;
        let lone = Lone::new(false, 20049)?;
        lone.start_callbacks()?;
        // The transport accepts as many callbacks as the NFS client offers in its session.
        ensure_eq!(lone.callback_slots() as usize, MOST);
        let backchannel = &lone.xprt().inner.backchannel;
        let mut taken = KVec::new();
        for _ in 0..MOST {
            taken.push(backchannel.take(1).ok_or(EBUSY)?, GFP_KERNEL)?;
        }
        for _ in 0..3 {
            ensure!(backchannel.take(1).is_none());
        }
        // When a callback ends, its slot can be used again.
        for _ in 0..2 * MOST {
            let slot = taken.remove(0).map_err(|_| EINVAL)?;
            backchannel.put(slot);
            taken.push(backchannel.take(1).ok_or(EBUSY)?, GFP_KERNEL)?;
            ensure!(backchannel.take(1).is_none());
        }
        while let Some(slot) = taken.pop() {
            backchannel.put(slot);
        }
        drop(lone);
        drop(class);
        Ok(())
    }

    // covers: BC-04, BC-19: the count of callbacks is right, whatever the order in which calls and
    // replies come, connections end, and new connections are made.
    #[test]
    fn random_callbacks_are_counted() -> Test {
        calm();
        let class = Registration::<Driver>::new()?;
        let lone = Lone::new(false, 20049)?;
        lone.start_callbacks()?;
        let backchannel = &lone.xprt().inner.backchannel;
        let (mut dice, mut cookie) = (0x5eed, 1u32);
        let mut served: KVec<Served> = KVec::new();
        let (mut refused, mut scarce) = (0, 0);
        for _ in 0..20_000 {
            let count = served
                .iter()
                .filter(|s| s.cookie == cookie && !s.answered)
                .count();
            match roll(&mut dice, 16) {
                0..8 => match backchannel.take(cookie) {
                    Some(slot) => {
                        ensure!(count < MOST);
                        let served_now = Served {
                            slot,
                            cookie,
                            answered: false,
                        };
                        served.push(served_now, GFP_KERNEL)?;
                    }
                    // The callback is refused, because the connection has no credit left, or
                    // because the callback service still uses every slot for callbacks of this
                    // connection or of earlier connections.
                    None if count >= MOST => refused += 1,
                    None => {
                        ensure_eq!(served.len(), 2 * MOST);
                        scarce += 1;
                    }
                },
                8..11 if !served.is_empty() => {
                    let which = roll(&mut dice, served.len());
                    // The test may choose a callback that was already replied to, or that belongs
                    // to an earlier connection. In these cases the count of callbacks must not
                    // change.
                    backchannel.answering(&served[which].slot);
                    served[which].answered = true;
                }
                11..15 if !served.is_empty() => {
                    let which = roll(&mut dice, served.len());
                    let over = served.remove(which).map_err(|_| EINVAL)?;
                    backchannel.put(over.slot);
                }
                15 => cookie += 1,
                _ => {}
            }
        }
        ensure_at_least!(refused, 100);
        ensure_at_least!(scarce, 100);
        while let Some(over) = served.pop() {
            backchannel.put(over.slot);
        }
        drop(lone);
        drop(class);
        Ok(())
    }
}
