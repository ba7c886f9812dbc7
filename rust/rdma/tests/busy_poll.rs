// SPDX-License-Identifier: GPL-2.0

//! Tests of threads that poll a completion queue and handle its completions.

use super::{
    ensure::Test,
    fake::{
        calm,
        Census,
        Death, //
    },
    peer::{
        Message,
        Peer, //
    },
    qp::{
        returned,
        thread,
        Keeper,
        Pair, //
    },
    wait::wait_until, //
};
use crate::{
    cq::PollOutcome,
    qp::Qp, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        self,
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};

pub(super) type Connection = Qp<Arc<Keeper>>;

/// Time limit for a waiting thread, in milliseconds. Without the limit, a test would hang if an
/// event was lost.
const PATIENCE: u32 = 20_000;

const ROUNDS: usize = 2000;

/// The state that the threads of a test share.
pub(super) struct Shared {
    /// Number of messages for which the polling thread waits.
    wanted: Atomic<usize>,
    /// Number of actions that were started in other threads.
    begun: Atomic<usize>,
    /// Number of actions in other threads that have ended.
    done: Atomic<usize>,
    /// Set by an action in another thread when the expected event has happened.
    pub(super) seen: Atomic<usize>,
    over: Atomic<bool>,
}

impl Shared {
    pub(super) fn new() -> Result<Arc<Self>> {
        let shared = Self {
            wanted: Atomic::new(0),
            begun: Atomic::new(0),
            done: Atomic::new(0),
            seen: Atomic::new(0),
            over: Atomic::new(false),
        };
        Ok(Arc::new(shared, GFP_KERNEL)?)
    }
}

fn pause(ms: u32) {
    // SAFETY: A test may sleep.
    unsafe { kernel::bindings::msleep(ms) };
}

fn send(qp: &Connection) -> Result {
    message(qp, false)
}

fn message(qp: &Connection, late: bool) -> Result {
    Peer::of(qp).send(Message {
        data: b"message",
        late,
        ..Message::default()
    })
}

/// An action that another thread executes.
#[pin_data]
struct Errand {
    qp: Arc<Connection>,
    shared: Arc<Shared>,
    what: fn(&Connection, &Shared),
    #[pin]
    work: Work<Errand>,
}

impl_has_work! {
    impl HasWork<Self> for Errand { self.work }
}

impl WorkItem for Errand {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Pin<KBox<Self>>) {
        (this.what)(&this.qp, &this.shared);
        let shared = this.shared.clone();
        // The reference to the queue pair is dropped before `done` is increased, because the thread
        // that waits for `done` may then check whether the queue pair still exists.
        drop(this);
        shared.done.fetch_add(1, Full);
    }
}

/// The actions that other threads execute. Dropping this object waits until all actions have ended.
/// So no action outlives its test, even if the test fails.
pub(super) struct Errands(pub(super) Arc<Shared>);

impl Errands {
    pub(super) fn finish(&self) -> Result {
        self.0.over.store(true, Relaxed);
        wait_until(|| self.0.done.load(Relaxed) == self.0.begun.load(Relaxed))
    }
}

impl Drop for Errands {
    fn drop(&mut self) {
        // The result is ignored, because the test may already have failed.
        let _ = self.finish();
    }
}

/// Runs `what` in another thread.
pub(super) fn elsewhere(
    pair: &Pair,
    shared: &Arc<Shared>,
    what: fn(&Connection, &Shared),
) -> Result {
    let errand = KBox::pin_init(
        pin_init!(Errand {
            qp: pair.owner.handle(),
            shared: shared.clone(),
            what,
            work <- new_work!("Errand::work"),
        }),
        GFP_KERNEL,
    )?;
    shared.begun.fetch_add(1, Full);
    workqueue::system_unbound().enqueue(errand);
    Ok(())
}

/// Starts a watchdog, which stops busy polling on this queue pair if the test takes too long. The
/// watchdog runs until the returned object is dropped.
fn watch(pair: &Pair, shared: &Arc<Shared>) -> Result<Errands> {
    let errands = Errands(shared.clone());
    elsewhere(pair, shared, |qp, shared| {
        let mut waited = 0;
        while !shared.over.load(Relaxed) {
            pause(10);
            waited += 10;
            if waited > PATIENCE {
                qp.stop_polling();
            }
        }
    })?;
    Ok(errands)
}

/// Handles completions until this number of messages has arrived.
fn busy_poll(pair: &Pair, messages: usize) -> PollOutcome {
    pair.owner
        .busy_poll(|| true, || pair.keeper.came.load(Relaxed) >= messages)
}

#[kunit_tests(xprtrdma_busy_poll)]
mod suite {
    use super::*;

    #[test]
    fn a_thread_handles_what_it_waits_for() -> Test {
        let pair = Pair::connected()?;
        let shared = Shared::new()?;
        let errands = watch(&pair, &shared)?;
        elsewhere(&pair, &shared, |qp, _| {
            pause(50);
            let _ = send(qp);
            pause(50);
            let _ = send(qp);
        })?;
        // The second message arrives later, so a second event must wake the polling thread.
        ensure_eq!(busy_poll(&pair, 2), PollOutcome::Over);
        ensure_eq!(pair.keeper.thread.load(Relaxed), thread());
        // The third message arrives while no thread polls, so the work item handles that message.
        send(&pair.owner)?;
        wait_until(|| pair.keeper.came.load(Relaxed) == 3)?;
        ensure!(pair.keeper.thread.load(Relaxed) != thread());
        errands.finish()?;
        drop(pair);
        wait_until(|| Census::now() == Census::NOTHING)?;
        Ok(())
    }

    #[test]
    fn a_thread_that_is_late_does_not_sleep() -> Test {
        let pair = Pair::connected()?;
        send(&pair.owner)?;
        wait_until(|| pair.keeper.came.load(Relaxed) == 1)?;
        ensure_eq!(busy_poll(&pair, 1), PollOutcome::Over);
        Ok(())
    }

    #[test]
    fn a_thread_that_may_not_does_not_wait() -> Test {
        let pair = Pair::connected()?;
        ensure_eq!(
            pair.owner.busy_poll(|| false, || false),
            PollOutcome::Stopped
        );
        // The condition for which the thread polls is already true, so the outcome is `Over` and
        // not `Stopped`.
        ensure_eq!(pair.owner.busy_poll(|| false, || true), PollOutcome::Over);
        send(&pair.owner)?;
        wait_until(|| pair.keeper.came.load(Relaxed) == 1)?;
        ensure!(pair.keeper.thread.load(Relaxed) != thread());
        Ok(())
    }

    // When a device fails, the drivers mlx4 and mlx5 report a completion event although none was
    // requested.
    #[test]
    fn what_a_device_reports_unasked_is_not_lost() -> Test {
        let pair = Pair::connected()?;
        let shared = Shared::new()?;
        let errands = watch(&pair, &shared)?;
        elsewhere(&pair, &shared, |qp, _| {
            pause(50);
            // The completion of the first message arrives right after the polling thread has taken
            // the completion of the second message off the queue.
            let _ = message(qp, true);
            let _ = send(qp);
        })?;
        ensure_eq!(busy_poll(&pair, 2), PollOutcome::Over);
        errands.finish()?;
        Ok(())
    }

    #[test]
    fn one_thread_polls_and_may_be_stopped() -> Test {
        let pair = Pair::connected()?;
        let shared = Shared::new()?;
        let errands = watch(&pair, &shared)?;
        elsewhere(&pair, &shared, |qp, shared| {
            // The outcome `Left` means that another thread polls.
            while qp.busy_poll(|| true, || true) != PollOutcome::Left && !shared.over.load(Relaxed)
            {
                pause(1);
            }
            shared.seen.fetch_add(1, Full);
            qp.stop_polling();
        })?;
        ensure_eq!(busy_poll(&pair, 1), PollOutcome::Stopped);
        ensure_eq!(shared.seen.load(Relaxed), 1);
        // No thread polls now, so the work item handles the next message.
        send(&pair.owner)?;
        wait_until(|| pair.keeper.came.load(Relaxed) == 1)?;
        ensure!(pair.keeper.thread.load(Relaxed) != thread());
        errands.finish()?;
        Ok(())
    }

    #[test]
    fn the_end_of_a_connection_sends_threads_away() -> Test {
        for rest in 0..10 {
            let pair = Pair::connected()?;
            let shared = Shared::new()?;
            elsewhere(&pair, &shared, |qp, shared| {
                // A message may arrive at any time during the shutdown. The condition for which
                // the thread polls never becomes true, so only the shutdown ends the poll.
                while qp.busy_poll(|| true, || false) != PollOutcome::Left
                    || !shared.over.load(Relaxed)
                {
                    pause(1);
                }
            })?;
            let errands = Errands(shared);
            pause(rest);
            let Pair { owner, .. } = pair;
            drop(owner);
            errands.finish()?;
        }
        wait_until(|| Census::now() == Census::NOTHING)?;
        Ok(())
    }

    #[test]
    fn a_handler_in_a_thread_does_not_outlive_the_owner_either() -> Test {
        let pair = Pair::connected()?;
        let shared = Shared::new()?;
        let errands = Errands(shared.clone());
        elsewhere(&pair, &shared, |qp, shared| {
            shared.wanted.store(thread(), Relaxed);
            // `busy_poll` returns immediately while the work item runs. So the loop calls
            // `busy_poll` again and again.
            while !shared.over.load(Relaxed) {
                qp.busy_poll(|| true, || false);
                pause(1);
            }
        })?;
        // Returns true if the polling thread handled the last message.
        let polls = || {
            let it = shared.wanted.load(Relaxed);
            it != 0 && it == pair.keeper.thread.load(Relaxed)
        };
        for sent in 1..=ROUNDS {
            send(&pair.owner)?;
            wait_until(|| pair.keeper.came.load(Relaxed) == sent)?;
            if polls() {
                break;
            }
        }
        pair.be_slow_with_a_message()?;
        ensure!(polls());
        Death::NoModify.comes();
        let keeper = pair.keeper.clone();
        {
            let pair = pair;
            drop(pair.owner);
            ensure_eq!(returned(&keeper), 1);
            // The end of this block drops the other fields of `pair`, while the polling thread
            // still runs.
        }
        errands.finish()?;
        calm();
        wait_until(|| Census::now() == Census::NOTHING)?;
        Ok(())
    }

    #[test]
    fn no_event_is_lost() -> Test {
        let pair = Pair::connected()?;
        let shared = Shared::new()?;
        let errands = watch(&pair, &shared)?;
        elsewhere(&pair, &shared, |qp, shared| {
            let mut sent = 0;
            while sent < ROUNDS && !shared.over.load(Relaxed) {
                if shared.wanted.load(Relaxed) > sent {
                    sent += 1;
                    if send(qp).is_err() {
                        break;
                    }
                    if sent % 3 == 0 {
                        // This call stops the polling thread, as another sender may do. After the
                        // call, the work item handles completions.
                        qp.stop_polling();
                    }
                }
                core::hint::spin_loop();
            }
        })?;
        let mut stopped = 0;
        for round in 1..=ROUNDS {
            shared.wanted.store(round, Relaxed);
            let start = now();
            loop {
                match busy_poll(&pair, round) {
                    PollOutcome::Over => break,
                    PollOutcome::Stopped => stopped += 1,
                    // The work item is running, so it handles the event.
                    PollOutcome::Left => pause(1),
                }
                ensure!(now() - start < i64::from(PATIENCE) * 500_000);
            }
        }
        errands.finish()?;
        ensure_eq!(pair.keeper.came.load(Relaxed), ROUNDS);
        ensure!(stopped <= ROUNDS);
        Ok(())
    }
}

/// Returns the nanoseconds since boot.
fn now() -> i64 {
    // SAFETY: The call has no requirements.
    unsafe { kernel::bindings::ktime_get() }
}
