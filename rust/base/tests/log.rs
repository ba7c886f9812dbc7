// SPDX-License-Identifier: GPL-2.0

//! Tests of the log's rate limit.

use super::ensure::Test;
use crate::log::may_log;
use kernel::prelude::*;

#[kunit_tests(xprtrdma_log)]
mod suite {
    use super::*;

    #[test]
    fn the_log_has_a_limit() -> Test {
        let shown = (0..1000).filter(|_| may_log()).count();
        // Twice the limit for five seconds, because the loop may run into a second period of five
        // seconds.
        ensure!(shown <= 40);
        Ok(())
    }
}
