// SPDX-License-Identifier: GPL-2.0

//! A gate that protects an object of the kernel's RDS while threads use the object ([`Gate`]).

use kernel::prelude::*;
use xprtrdma_base::{
    holders::Holders,
    new_spinlock,
    spin::SpinLock, //
};

/// A gate that is opened once and closed once. The gate protects an object, which exists until the
/// gate is closed.
#[pin_data]
pub(crate) struct Gate {
    #[pin]
    phase: SpinLock<Phase>,
    inside: Holders,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The gate was never open.
    New,
    Open,
    /// The gate was closed.
    Over,
}

impl Gate {
    /// Returns a gate that is not open yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            phase <- new_spinlock!(Phase::New, "Gate::phase"),
            inside: Holders::new(),
        })
    }

    /// Opens the gate, unless it was closed already.
    pub(crate) fn open(&self) {
        let mut phase = self.phase.lock();
        if *phase == Phase::New {
            *phase = Phase::Open;
        }
    }

    /// Enters the gate if it is open. Does not sleep.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        let phase = self.phase.lock();
        if *phase != Phase::Open {
            return None;
        }
        self.inside.add();
        Some(Inside(self))
    }

    /// Closes the gate, and waits until every [`Inside`] is dropped. May sleep.
    pub(crate) fn close(&self) {
        *self.phase.lock() = Phase::Over;
        self.inside.wait();
    }
}

/// Proof that a gate was entered. [`Gate::close`] does not return before the proof is dropped.
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The gate is valid, because it is borrowed. `enter` has counted this object in
        // `inside`.
        unsafe { Holders::remove(&self.0.inside) };
    }
}
