// SPDX-License-Identifier: GPL-2.0

//! A work item that takes 50 ms ([`Later`]).

use kernel::{
    impl_has_work, new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        new_work,
        Work,
        WorkItem, //
    },
};

/// A work item that takes 50 ms and then drops its value.
#[pin_data]
pub(crate) struct Later<V: Send + Unpin + 'static> {
    #[pin]
    work: Work<Self>,
    #[pin]
    value: Mutex<Option<V>>,
    done: Atomic<bool>,
}

impl_has_work! {
    impl{V: Send + Unpin + 'static} HasWork<Self> for Later<V> { self.work }
}

impl<V: Send + Unpin + 'static> Later<V> {
    pub(crate) fn new(value: V) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("Later::work"),
                value <- new_mutex!(Some(value), "Later::value"),
                done: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    pub(crate) fn is_done(&self) -> bool {
        // ORDERING: Pairs with the release in `run`, so that the end of the delay is visible.
        self.done.load(Acquire)
    }
}

impl<V: Send + Unpin + 'static> WorkItem for Later<V> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: A work item may sleep.
        unsafe { kernel::bindings::msleep(50) };
        this.done.store(true, Release);
        let value = this.value.lock().take();
        drop(value);
    }
}
