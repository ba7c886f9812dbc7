// SPDX-License-Identifier: GPL-2.0

//! The time in which something of the kernel's RDS may be used ([`Gate`]).

use kernel::prelude::*;
use xprtrdma_base::{
    holders::Holders,
    new_spinlock,
    spin::SpinLock, //
};

/// A gate that is opened once and closed once. The object that it guards exists until it is closed.
#[pin_data]
pub(crate) struct Gate {
    #[pin]
    phase: SpinLock<Phase>,
    inside: Holders,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The gate was not opened yet.
    New,
    Open,
    /// The gate was closed.
    Over,
}

impl Gate {
    /// A gate that is not open yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            phase <- new_spinlock!(Phase::New, "Gate::phase"),
            inside: Holders::new(),
        })
    }

    /// Opens the gate, unless it was closed.
    pub(crate) fn open(&self) {
        let mut phase = self.phase.lock();
        if *phase == Phase::New {
            *phase = Phase::Open;
        }
    }

    /// Enters, if the gate is open. Does not sleep.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        let phase = self.phase.lock();
        if *phase != Phase::Open {
            return None;
        }
        self.inside.add();
        Some(Inside(self))
    }

    /// Closes the gate, and waits until nothing is inside. Sleeps.
    pub(crate) fn close(&self) {
        *self.phase.lock() = Phase::Over;
        self.inside.wait();
    }
}

/// Proof that a gate was entered. The gate is not closed before the proof is dropped.
pub(crate) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // SAFETY: The gate is borrowed, and `enter` has counted the holder.
        unsafe { Holders::remove(&self.0.inside) };
    }
}
