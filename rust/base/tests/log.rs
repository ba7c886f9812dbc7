// SPDX-License-Identifier: GPL-2.0

//! The log.

use super::ensure::Test;
use crate::log::may_log;
use kernel::prelude::*;

#[kunit_tests(xprtrdma_log)]
mod suite {
    use super::*;

    #[test]
    fn the_log_has_a_limit() -> Test {
        let shown = (0..1000).filter(|_| may_log()).count();
        // The number of lines in five seconds, twice: a second period may begin during the loop.
        ensure!(shown <= 40);
        Ok(())
    }
}
