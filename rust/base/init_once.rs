// SPDX-License-Identifier: GPL-2.0

//! Something that is initialised once ([`InitOnce`]).

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Release, //
    },
};

/// Whether a static object was initialised, which the first user does.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use xprtrdma_base::init_once::InitOnce;
///
/// static READY: InitOnce = InitOnce::new();
///
/// fn set_up() -> Result {
///     READY.call(|| pr_info!("the first caller\n"))
/// }
/// ```
pub struct InitOnce {
    called: Atomic<bool>,
    done: Atomic<bool>,
}

impl InitOnce {
    /// Makes one whose object is not initialised.
    #[expect(clippy::new_without_default, reason = "a static object has no default")]
    pub const fn new() -> Self {
        Self {
            called: Atomic::new(false),
            done: Atomic::new(false),
        }
    }

    /// Calls `init` if no caller has done so before. `EBUSY`: the first caller is still at work.
    pub fn call(&self, init: impl FnOnce()) -> Result {
        if !self.called.xchg(true, Full) {
            init();
            // ORDERING: Pairs with the acquire in `is_done`.
            self.done.store(true, Release);
        } else if !self.is_done() {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Returns whether the object was initialised; what `init` has written is seen then.
    pub fn is_done(&self) -> bool {
        // ORDERING: Pairs with the release in `call`.
        self.done.load(Acquire)
    }
}
