// SPDX-License-Identifier: GPL-2.0

//! One-time initialisation of a static object ([`InitOnce`]).

use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Release, //
    },
};

/// Records whether a static object has been initialised, so that only the first caller initialises
/// it.
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
    /// Makes an `InitOnce` for an object that is not initialised.
    #[expect(clippy::new_without_default, reason = "a static object has no default")]
    pub const fn new() -> Self {
        Self {
            called: Atomic::new(false),
            done: Atomic::new(false),
        }
    }

    /// Calls `init` unless another caller has already called it. Returns `EBUSY` while the first
    /// caller is still running `init`.
    pub fn call(&self, init: impl FnOnce()) -> Result {
        if !self.called.xchg(true, Full) {
            init();
            // ORDERING: Pairs with the acquire in `is_done`, so that a thread that sees the flag
            // sees the object.
            self.done.store(true, Release);
        } else if !self.is_done() {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Returns whether the object has been initialised. If so, the caller sees what `init` has
    /// written.
    pub fn is_done(&self) -> bool {
        // ORDERING: Pairs with the release in `call`, so that the caller sees what `init` has
        // written.
        self.done.load(Acquire)
    }
}
