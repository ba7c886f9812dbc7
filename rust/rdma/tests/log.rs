// SPDX-License-Identifier: GPL-2.0

//! A log of events, in order.

use kernel::{
    prelude::*,
    sync::{
        new_condvar,
        new_mutex,
        Arc,
        CondVar,
        CondVarTimeoutResult,
        Mutex, //
    },
};

/// Records events, so that a test can wait for them.
#[pin_data]
pub(super) struct Log<E: Copy + PartialEq> {
    #[pin]
    events: Mutex<KVec<E>>,
    #[pin]
    more: CondVar,
}

/// A time limit in jiffies that is exceeded only if a test hangs.
const PATIENCE_JIFFIES: usize = 30 * kernel::bindings::HZ as usize;

impl<E: Copy + PartialEq> Log<E> {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                events <- new_mutex!(KVec::new(), "Log::events"),
                more <- new_condvar!("Log::more"),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn add(&self, event: E) {
        // If the push fails, the test does not find the event and fails.
        let _ = self.events.lock().push(event, GFP_KERNEL);
        self.more.notify_all();
    }

    pub(super) fn count(&self, event: E) -> usize {
        self.events.lock().iter().filter(|e| **e == event).count()
    }

    /// Waits until there is an event for which `is` returns true. Returns `ETIMEDOUT` if no such
    /// event arrives.
    pub(super) fn wait(&self, is: impl Fn(&E) -> bool) -> Result<E> {
        self.look(|events| events.iter().copied().find(|e| is(e)))
    }

    /// Waits until the event has happened this many times. Returns `ETIMEDOUT` if it happens fewer
    /// times.
    pub(super) fn wait_times(&self, event: E, times: usize) -> Result {
        self.look(|events| {
            let count = events.iter().filter(|e| **e == event).count();
            (count >= times).then_some(())
        })
    }

    fn look<R>(&self, found: impl Fn(&[E]) -> Option<R>) -> Result<R> {
        let mut events = self.events.lock();
        loop {
            if let Some(found) = found(&events) {
                return Ok(found);
            }
            match self
                .more
                .wait_interruptible_timeout(&mut events, PATIENCE_JIFFIES)
            {
                CondVarTimeoutResult::Woken { .. } => {}
                _ => return Err(ETIMEDOUT),
            }
        }
    }
}
