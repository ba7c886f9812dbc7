// SPDX-License-Identifier: GPL-2.0

//! Tests of transaction ids that a server cannot predict.

use super::ensure::Test;
use crate::xids::{
    Xids,
    NUMBERS,
    OLD, //
};
use kernel::prelude::*;

/// Number of calls in a test. With this number of calls, a test draws an xid from each slot of an
/// [`Xids`] several times.
const CALLS: u32 = 3 * NUMBERS;
/// The RPC client's xid counter when an [`Xids`] is created.
const FIRST: u32 = 5;
/// A procedure whose calls have unpredictable xids. The calls of the procedure `PLAIN` have
/// ordinary xids.
const SECRET: u32 = 7;
const PLAIN: u32 = 8;

/// Returns the xid that a call of this procedure uses. `xid` is the xid that the RPC client chose.
fn of_call(xids: &Xids, mut xid: u32, procedure: u32) -> u32 {
    xids.renumber(&mut xid, procedure);
    xid
}

#[kunit_tests(xprtrdma_xids)]
mod suite {
    use super::*;

    #[test]
    fn only_calls_that_need_it_have_such_numbers() -> Test {
        let mut counter = FIRST;
        let xids = Xids::new(&mut counter)?;
        ensure_eq!(counter, FIRST + NUMBERS);
        ensure_eq!(of_call(&xids, counter, SECRET), counter);
        xids.include(SECRET);
        ensure!(Xids::is_secret(of_call(&xids, counter, SECRET)));
        // The highest bit marks the xids that [`Xids`] draws. So this bit is cleared in the xid of
        // a call that draws no xid.
        ensure_eq!(of_call(&xids, 1 << 31 | 9, PLAIN), 9);
        Ok(())
    }

    #[test]
    fn no_number_is_used_twice() -> Test {
        for start in [0, FIRST, u32::MAX - NUMBERS / 2, (1 << 31) - CALLS / 2] {
            let mut counter = start;
            let xids = Xids::new(&mut counter)?;
            xids.include(SECRET);
            let mut used = KVVec::new();
            let mut foreseen = 0;
            for call in 0..CALLS {
                let given = counter.wrapping_add(call);
                let number = of_call(&xids, given, SECRET);
                ensure!(Xids::is_secret(number));
                foreseen += u32::from(number & !(1 << 31) == given & !(1 << 31));
                used.push(number, GFP_KERNEL)?;
            }
            used.sort_unstable();
            ensure!(used.windows(2).all(|pair| pair[0] != pair[1]));
            // A random guess of an xid is right with a probability of 1 / `NUMBERS`.
            ensure_at_least!(20, foreseen);
        }
        Ok(())
    }

    #[test]
    fn each_place_gives_what_was_put_there() -> Test {
        let mut counter = FIRST;
        let xids = Xids::new(&mut counter)?;
        for (place, given) in [(0, 50_000), (1, 50_001), (NUMBERS - 1, 50_002)] {
            let first = xids.draw(given, place);
            ensure_eq!(first & !(1 << 31), FIRST + place);
            ensure_eq!(xids.draw(60_000, place), given | 1 << 31);
        }
        // A random number that exceeds the number of slots still selects an existing slot.
        ensure_eq!(xids.draw(70_000, NUMBERS), 60_000 | 1 << 31);
        Ok(())
    }

    #[test]
    fn old_numbers_are_not_used() -> Test {
        let mut counter = FIRST;
        let xids = Xids::new(&mut counter)?;
        ensure_eq!(xids.draw(FIRST + OLD - 1, 0), FIRST | 1 << 31);
        // The xid in the slot is too old, so the call keeps its own xid. The slot then contains the
        // call's own xid, too. The next call takes that xid from the slot.
        let late = FIRST + 1 + OLD;
        ensure_eq!(xids.draw(late, 1), late);
        ensure_eq!(xids.draw(late + 1, 1), late | 1 << 31);
        // `trim` removes an xid that has become too old, so no call uses that xid.
        xids.trim(FIRST + 2 + OLD);
        ensure_eq!(xids.draw(FIRST + 3, 2), FIRST + 3);
        // A recent xid stays in its slot.
        ensure_eq!(xids.draw(late + 2, 1), (late + 1) | 1 << 31);
        Ok(())
    }
}
