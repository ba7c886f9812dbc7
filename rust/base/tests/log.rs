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
        // The limit is 20 lines in five seconds. The loop may run into a second period, so the test
        // allows twice the limit.
        ensure!(shown <= 40);
        Ok(())
    }
}
