// SPDX-License-Identifier: GPL-2.0

//! Calls and their replies, from the start of the task to its end.

use super::{
    driver::{
        self,
        calm,
        fate,
        reply,
        Driver,
        Fate, //
    },
    ensure::Test,
    rpc::{
        self,
        releases,
        wait_gone,
        Alone,
        Client,
        Memory, //
    },
    wait::wait_until, //
};
use crate::{
    call::Call,
    class::Registration,
    lease::{
        Lease,
        Message, //
    },
    slot::RESERVE,
    xdr_buf::Part,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::Relaxed, //
};
use xprtrdma_bindings as bindings;

/// Sends a reply to every call that was sent and has no reply yet. Each reply contains `rest` after
/// its header.
fn answer_all(client: &Client, rest: &[u8]) -> Result<usize> {
    let kept = client.xprt().data().take_kept();
    for xid in &kept {
        let answer = reply(*xid, rest)?;
        let mut pinned = client.xprt().lookup(*xid).ok_or(ENOENT)?;
        pinned.place_inline(&answer)?;
        pinned.complete(answer.len()).map_err(|_| EBUSY)?;
    }
    Ok(kept.len())
}

/// Waits until a call was sent and has no reply yet. Returns the xid of this call. There must be no
/// other such call.
fn only(client: &Client) -> Result<u32> {
    client.wait_kept(1)?;
    let kept = client.xprt().data().take_kept();
    kept.first().copied().ok_or(ENOENT)
}

#[kunit_tests(xprtrdma_call)]
mod suite {
    use super::*;

    #[test]
    fn a_call_is_answered() -> Test {
        let client = Alone::new()?;
        for _ in 0..20 {
            client.null()?.wait()?;
        }
        ensure_eq!(driver::CONNECTS.load(Relaxed), 1);
        ensure_eq!(driver::SENDS.load(Relaxed), 20);
        ensure_eq!(driver::CHECKS.load(Relaxed), 20);
        // The driver revoked the access to the memory of each call once, before the memory was
        // released. When a call was queued, the driver revoked nothing, because the call was not
        // sent yet.
        ensure_eq!(driver::REVOKES.load(Relaxed), 20);
        client.end()
    }

    #[test]
    fn a_call_that_is_not_sent_is_tried_again() -> Test {
        for first in [Fate::Waits, Fate::NoBuffers, Fate::NotConnected] {
            let client = Alone::new()?;
            fate(first);
            client.null()?.wait()?;
            ensure_eq!(driver::SENDS.load(Relaxed), 2);
            let connects = if first == Fate::NotConnected { 2 } else { 1 };
            ensure_eq!(driver::CONNECTS.load(Relaxed), connects);
            client.end()?;
        }
        Ok(())
    }

    #[test]
    fn a_connection_that_fails_is_tried_again() -> Test {
        let client = Alone::new()?;
        driver::fail_connects(3);
        client.null()?.wait()?;
        ensure_eq!(driver::CONNECTS.load(Relaxed), 4);
        // After a refused connection attempt the RPC client requests that the connection be closed.
        // The request has no effect, because the connection's cookie has changed.
        ensure_eq!(driver::CLOSES.load(Relaxed), 0);
        client.end()
    }

    #[test]
    fn an_error_of_the_driver_ends_a_call() -> Test {
        let client = Alone::new()?;
        fate(Fate::Refused);
        ensure_eq!(client.null()?.wait(), Err(EXDEV));
        // An error ends the call even if its task sleeps already.
        fate(Fate::Kept);
        let pending = client.null()?;
        let xid = only(&client)?;
        let pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        pinned.fail(EXDEV).map_err(|_| EBUSY)?;
        ensure_eq!(pending.wait(), Err(EXDEV));
        // The slot keeps no state of the earlier call.
        fate(Fate::Answered);
        client.null()?.wait()?;
        client.end()
    }

    #[test]
    fn a_call_is_revoked_before_it_is_queued_again() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let pending = client.null()?;
        only(&client)?;
        ensure_eq!(driver::REVOKES.load(Relaxed), 0);
        client.xprt().force_disconnect();
        client.wait_kept(1)?;
        ensure_eq!(driver::SENDS.load(Relaxed), 2);
        ensure_eq!(driver::REVOKES.load(Relaxed), 1);
        answer_all(&client, &[])?;
        pending.wait()?;
        ensure_eq!(driver::REVOKES.load(Relaxed), 2);
        client.end()
    }

    #[test]
    fn a_call_that_fails_before_its_task_sleeps_costs_no_connection() -> Test {
        let client = Alone::of_nfs4()?;
        client.null()?.wait()?;
        fate(Fate::FailsAwake);
        let first = client.null()?;
        wait_until(|| driver::SENDS.load(Relaxed) == 2)?;
        let second = client.null()?;
        ensure_eq!(first.wait(), Err(EXDEV));
        second.wait()?;
        // If the connection had been closed, this call would establish a new connection, and
        // `CONNECTS` would be two.
        client.null()?.wait()?;
        ensure_eq!(driver::SENDS.load(Relaxed), 4);
        ensure_eq!(driver::CONNECTS.load(Relaxed), 1);
        client.end()
    }

    #[test]
    fn a_call_that_fails_in_its_own_send_costs_no_connection() -> Test {
        let client = Alone::of_nfs4()?;
        client.null()?.wait()?;
        fate(Fate::Refused);
        ensure_eq!(client.null()?.wait(), Err(EXDEV));
        fate(Fate::Answered);
        client.null()?.wait()?;
        ensure_eq!(driver::CONNECTS.load(Relaxed), 1);
        client.end()
    }

    #[test]
    fn tasks_without_a_slot_get_one_in_turn() -> Test {
        calm();
        let class = Registration::<Driver>::new()?;
        // With 66 slots, the bitmap of free slots has more than one word.
        for (slots, calls) in [(1u16, 12), (2, 12), (3, 12), (66, 70)] {
            driver::slots(slots);
            let client = Client::new(false)?;
            fate(Fate::Kept);
            let mut pending = KVec::new();
            for _ in 0..calls {
                pending.push(client.null()?, GFP_KERNEL)?;
            }
            client.wait_kept(slots.into())?;
            ensure_eq!(client.xprt().slots_in_use(), usize::from(slots));
            let mut answered = 0;
            while answered < calls {
                client.wait_kept(1)?;
                ensure!(client.xprt().data().kept() <= slots.into());
                answered += answer_all(&client, &[])?;
            }
            for one in pending {
                one.wait()?;
            }
            drop(client);
            wait_gone()?;
        }
        drop(class);
        Ok(())
    }

    #[test]
    fn buffers_of_slots_at_rest_are_given_back() -> Test {
        calm();
        // CAST: `RESERVE` is small.
        driver::slots(RESERVE as u16 + 4);
        let class = Registration::<Driver>::new()?;
        let client = Client::new(false)?;
        fate(Fate::Kept);
        let mut pending = KVec::new();
        for _ in 0..RESERVE + 4 {
            let memory = Memory::new(0, 2 * PAGE_SIZE, true)?;
            pending.push(client.get(memory)?, GFP_KERNEL)?;
        }
        client.wait_kept(RESERVE + 4)?;
        let all = client.xprt().buffered();
        let each = all / (RESERVE + 4);
        // The memory of a slot consists of a buffer for the call, a buffer for the reply, and two
        // pages. The head and the tail of a reply meet at the border between the two pages.
        ensure!(each >= 512 + 512 + 2 * PAGE_SIZE);
        // `trim_slots` frees nothing while no slot is idle.
        client.xprt().trim_slots();
        client.xprt().trim_slots();
        ensure_eq!(client.xprt().buffered(), all);
        answer_all(&client, &0u32.to_be_bytes())?;
        for one in pending {
            one.wait()?;
        }
        // The slots were used since the last call of `trim_slots`. So this call frees nothing, but
        // records that the slots are idle.
        client.xprt().trim_slots();
        ensure_eq!(client.xprt().buffered(), all);
        let running = client.null()?;
        client.wait_kept(1)?;
        client.xprt().trim_slots();
        // Now `RESERVE + 1` slots have buffers: the slot of the call in flight, and the slots that
        // always keep their buffers.
        ensure_eq!(client.xprt().buffered(), (RESERVE + 1) * each);
        answer_all(&client, &[])?;
        running.wait()?;
        // One slot was used since the last call of `trim_slots`, so the next call does not free
        // that slot's buffers.
        client.xprt().trim_slots();
        ensure_eq!(client.xprt().buffered(), (RESERVE + 1) * each);
        client.xprt().trim_slots();
        ensure_eq!(client.xprt().buffered(), RESERVE * each);
        // A slot that was used more often does not keep its buffers longer than other slots.
        let mut pending = KVec::new();
        for _ in 0..RESERVE + 2 {
            pending.push(client.null()?, GFP_KERNEL)?;
            client.wait_kept(pending.len())?;
        }
        let kept = client.xprt().data().take_kept();
        let end = |xid: u32| -> Result {
            let pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            pinned.fail(EXDEV).map_err(|_| EBUSY)
        };
        let (last, others) = kept.split_last().ok_or(EINVAL)?;
        let last_of_all = pending.pop().ok_or(EINVAL)?;
        for xid in others {
            end(*xid)?;
        }
        for one in pending {
            ensure_eq!(one.wait(), Err(EXDEV));
        }
        client.xprt().trim_slots();
        client.xprt().trim_slots();
        let kept_by_rest = client.xprt().buffered();
        end(*last)?;
        ensure_eq!(last_of_all.wait(), Err(EXDEV));
        client.xprt().trim_slots();
        ensure_eq!(client.xprt().buffered(), kept_by_rest);
        client.xprt().trim_slots();
        ensure_eq!(client.xprt().buffered(), RESERVE * each);
        fate(Fate::Answered);
        client.null()?.wait()?;
        drop(client);
        wait_gone()?;
        drop(class);
        Ok(())
    }

    #[test]
    fn a_call_is_found_while_it_is_pending() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let pending = client.null()?;
        let xid = only(&client)?;
        ensure!(client.xprt().lookup(xid.wrapping_add(1)).is_none());
        // A call stays pending when the handle that pinned the call is dropped.
        for _ in 0..3 {
            let pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            ensure_eq!(pinned.xid(), xid);
        }
        // The request has no [`Lease`], so the thread that has pinned the request may write the
        // reply.
        let answer = reply(xid, &[])?;
        let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        ensure!(client.xprt().lookup(xid).is_none());
        ensure!(client.xprt().is_pinned(xid));
        ensure!(!client.xprt().is_pinned(xid.wrapping_add(1)));
        pinned.place_inline(&answer)?;
        pinned.complete(answer.len()).map_err(|_| EBUSY)?;
        ensure!(!client.xprt().is_pinned(xid));
        pending.wait()?;
        ensure!(client.xprt().lookup(xid).is_none());
        client.end()
    }

    #[test]
    fn a_call_does_not_end_while_its_memory_is_lent() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let pending = client.get(Memory::new(0, 5000, false)?)?;
        let xid = only(&client)?;
        let pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        let slot = client.xprt().slot(pinned.slot().index()).ok_or(EINVAL)?;
        // SAFETY: The slot has a request. No other thread creates a lease of the request, and no
        // thread waits yet for the end of the request's leases.
        let lend = || unsafe { Lease::new(slot) };
        let first = lend().ok_or(EINVAL)?;
        // While a thread has pinned the request, no second lease of the request's memory is
        // created. The thread that has pinned the request may end the first lease, and assumes that
        // no other lease exists.
        ensure!(lend().is_none());
        drop(pinned);
        let (second, third) = (lend().ok_or(EINVAL)?, lend().ok_or(EINVAL)?);
        let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        let answer = reply(xid, &0u32.to_be_bytes())?;
        for (at, lease) in [first, second, third].into_iter().enumerate() {
            ensure_eq!(pinned.place_inline(&answer), Err(EBUSY));
            ensure_eq!(pinned.place_around(&answer, 0), Err(EBUSY));
            ensure_eq!(pinned.placed_start(), [0; 8]);
            pinned = match pinned.complete(answer.len()) {
                Ok(()) => return Err(EINVAL.into()),
                Err(pinned) => pinned,
            };
            pinned = match pinned.fail(EXDEV) {
                Ok(()) => return Err(EINVAL.into()),
                Err(pinned) => pinned,
            };
            // The second lease is dropped. `pinned.end_lease` ends the first and the third lease.
            match at {
                1 => drop(lease),
                _ => pinned.end_lease(lease),
            }
        }
        pinned.place_inline(&answer)?;
        pinned.complete(answer.len()).map_err(|_| EBUSY)?;
        ensure_eq!(pending.memory()?.got(), 0);
        client.end()
    }

    #[test]
    fn lent_memory_is_not_cleared() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let pending = client.null()?;
        let xid = only(&client)?;
        let answer = reply(xid, &[])?;
        let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        pinned.place_inline(&answer)?;
        ensure_eq!(pinned.placed_start()[..], answer[..8]);
        let index = pinned.slot().index();
        let slot = client.xprt().slot(index).ok_or(EINVAL)?;
        // SAFETY: No other thread sends the request, which does not change until it is completed.
        let call = unsafe { Call::new(slot) };
        // The memory is not cleared, because the thread that has pinned the request may be writing
        // to the same memory.
        ensure_eq!(call.clear_reply(), Err(EAGAIN));
        drop(pinned);
        let loan = call.lend(Message::Reply, Part::Whole).ok_or(EINVAL)?;
        ensure_eq!(call.clear_reply(), Err(EBUSY));
        ensure_eq!(call.fail(EXDEV), Err(EBUSY));
        drop(loan);
        call.clear_reply()?;
        let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        ensure_eq!(pinned.placed_start(), [0; 8]);
        pinned.place_inline(&answer)?;
        pinned.complete(answer.len()).map_err(|_| EBUSY)?;
        pending.wait()?;
        client.end()
    }

    #[test]
    fn an_old_reply_is_gone_when_its_slot_is_used_again() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let mut index = None;
        for _ in 0..2 {
            let pending = client.null()?;
            let xid = only(&client)?;
            let answer = reply(xid, &[])?;
            let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            // The second call uses the same slot, and so the same memory.
            ensure_eq!(
                *index.get_or_insert(pinned.slot().index()),
                pinned.slot().index()
            );
            ensure_eq!(pinned.placed_start(), [0; 8]);
            pinned.place_inline(&answer)?;
            ensure_eq!(pinned.placed_start()[..], answer[..8]);
            pinned.complete(answer.len()).map_err(|_| EBUSY)?;
            pending.wait()?;
        }
        client.end()
    }

    #[test]
    fn the_end_of_a_killed_call_waits_for_its_memory() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let pending = client.put(Memory::new(100, 6000, false)?)?;
        let xid = only(&client)?;
        let lease = {
            let pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            // SAFETY: The slot has a request. No other thread creates a lease of the request, and
            // no thread waits yet for the end of the request's leases.
            unsafe { Lease::new(pinned.slot()) }.ok_or(EINVAL)?
        };
        let revokes = driver::REVOKES.load(Relaxed);
        client.kill();
        // The driver has revoked the access to the memory, and the task waits.
        wait_until(|| driver::REVOKES.load(Relaxed) > revokes)?;
        drop(lease);
        ensure_eq!(pending.wait(), Err(ERESTARTSYS));
        client.end()
    }

    #[test]
    fn the_end_of_a_killed_call_waits_for_who_works_on_it() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let pending = client.get(Memory::new(0, 5000, false)?)?;
        let pinned = client.xprt().lookup(only(&client)?).ok_or(ENOENT)?;
        client.kill();
        wait_until(|| {
            // SAFETY: A pinned request has a task.
            let task = unsafe { (*pinned.rqst()).rq_task };
            // SAFETY: A pinned request has a task.
            let state = unsafe { core::ptr::read_volatile(&raw const (*task).tk_runstate) };
            state & (1 << bindings::RPC_TASK_MSG_PIN_WAIT) != 0
        })?;
        drop(pinned);
        ensure_eq!(pending.wait(), Err(ERESTARTSYS));
        client.end()
    }

    // covers: V1-105: a killed process waits a limited time for the peer before it takes its memory
    // back. Tasks without a process take their memory back without this wait.
    #[test]
    fn a_killed_process_lingers_for_a_while() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        for longer_than_the_loan in [true, false] {
            driver::linger(if longer_than_the_loan { 600_000 } else { 50 });
            let process = client.process()?;
            let pinned = client.xprt().lookup(only(&client)?).ok_or(ENOENT)?;
            let slot = client.xprt().slot(pinned.slot().index()).ok_or(EINVAL)?;
            // SAFETY: The slot has a request. No other thread creates a lease of the request, and
            // no thread waits yet for the end of the request's leases.
            let lease = unsafe { Lease::new(slot) }.ok_or(EINVAL)?;
            drop(pinned);
            let revokes = driver::REVOKES.load(Relaxed);
            client.kill();
            if longer_than_the_loan {
                wait_until(|| slot.leases.is_awaited())?;
                ensure_eq!(driver::REVOKES.load(Relaxed), revokes);
            } else {
                wait_until(|| driver::REVOKES.load(Relaxed) > revokes)?;
            }
            drop(lease);
            ensure_eq!(process.wait(), Err(ERESTARTSYS));
            ensure_eq!(driver::REVOKES.load(Relaxed), revokes + 1);
        }
        client.end()
    }

    // covers: V1-105: when a call is encoded again or ends, no page is freed that the peer may
    // still read.
    #[test]
    fn pages_of_the_security_flavour_outlast_their_loan() -> Test {
        let client = Alone::new()?;
        fate(Fate::Lent);
        for killed in [false, true] {
            releases();
            let mut memory = Memory::new(0, 2 * PAGE_SIZE, false)?.wrapped();
            memory.set(0, 0x11);
            memory.set(PAGE_SIZE, 0x22);
            let pending = client.put(memory)?;
            let xid = only(&client)?;
            let rqst = client.xprt().lookup(xid).ok_or(ENOENT)?.rqst();
            // SAFETY: The request is pending, or its task waits for the end of `loan`.
            let head = || unsafe { (*rqst).rq_snd_buf.head[0].iov_base };
            let lent_head = head();
            let loan = client.xprt().data().take_lent().ok_or(ENOENT)?;
            let (sends, revokes) = (driver::SENDS.load(Relaxed), driver::REVOKES.load(Relaxed));
            if killed {
                client.kill();
            } else {
                client.xprt().force_disconnect();
            }
            wait_until(|| driver::REVOKES.load(Relaxed) > revokes)?;
            ensure_eq!(releases(), 0);
            ensure!(loan.first_bytes().eq([0x11, 0x22]));
            ensure_eq!(driver::SENDS.load(Relaxed), sends);
            // The inline arguments of the second encoding do not overlap the lent memory of the
            // first encoding.
            ensure_eq!(head() == lent_head, killed);
            drop(loan);
            if killed {
                ensure_eq!(pending.wait(), Err(ERESTARTSYS));
                ensure_eq!(releases(), 1);
                continue;
            }
            client.wait_kept(1)?;
            ensure_eq!(releases(), 1);
            // The driver has lent the pages of the second encoding, too.
            let loan = client.xprt().data().take_lent().ok_or(ENOENT)?;
            ensure!(loan.first_bytes().eq([0x11, 0x22]));
            drop(loan);
            answer_all(&client, &[])?;
            pending.wait()?;
            ensure_eq!(releases(), 1);
        }
        client.end()
    }

    #[test]
    fn replies_go_where_they_belong() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        // Columns: offset of the data in the first page, length of the memory for the data, number
        // of data bytes in the reply, whether the call is a READ, whether the pages are still to be
        // allocated.
        for (base, len, data, read, sparse) in [
            (0, 100, 100, false, false),
            (0, 100, 3, false, false),
            (0, PAGE_SIZE, PAGE_SIZE, false, false),
            (0, 2 * PAGE_SIZE, 0, false, true),
            (0, 3 * PAGE_SIZE, 5000, false, true),
            (17, 6000, 6000, true, false),
            (4000, 6000, 4001, true, false),
        ] {
            let memory = Memory::new(base, len, sparse)?;
            let memory = if read { memory.of_read() } else { memory };
            let pending = client.get(memory)?;
            let xid = only(&client)?;
            let mut rest = KVec::new();
            // CAST: `data` is at most a few thousand.
            rest.extend_from_slice(&(data as u32).to_be_bytes(), GFP_KERNEL)?;
            for i in 0..data {
                rest.push((i % 251) as u8, GFP_KERNEL)?;
            }
            while rest.len() % 4 != 0 {
                rest.push(0, GFP_KERNEL)?;
            }
            let answer = reply(xid, &rest)?;
            let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            pinned.place_inline(&answer)?;
            pinned.complete(answer.len()).map_err(|_| EBUSY)?;
            let memory = pending.memory()?;
            ensure_eq!(memory.got(), data);
            for i in 0..data {
                if memory.byte(i) != Some((i % 251) as u8) {
                    pr_err!("byte {i} of {data} at {base}\n");
                    return Err(EINVAL.into());
                }
            }
        }
        client.end()
    }

    #[test]
    fn replies_around_data_go_where_they_belong() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        for data in [5000usize, 4999, 4998, 4997, 1, 0] {
            let mut memory = Memory::new(17, 5000, false)?.of_read();
            for i in 0..data {
                memory.set(i, 0x5a);
            }
            let pending = client.get(memory)?;
            let xid = only(&client)?;
            // The data of the reply are already in the pages. The message contains the bytes before
            // the data.
            // CAST: `data` is at most a few thousand.
            let answer = reply(xid, &(data as u32).to_be_bytes())?;
            let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            if (1..5000).contains(&data) {
                // If the data item is shorter than the pages, bytes after the data item are
                // refused, although the tail has space for them.
                ensure_at_least!(pinned.reply().tail_len(), 4);
                let longer = KVec::from_elem(1u8, pinned.reply().head_len() + 1, GFP_KERNEL)?;
                ensure_eq!(pinned.place_around(&longer, data), Err(EMSGSIZE));
            }
            pinned.place_around(&answer, data)?;
            let padded = data.next_multiple_of(4);
            pinned.complete(answer.len() + padded).map_err(|_| EBUSY)?;
            let memory = pending.memory()?;
            ensure_eq!(memory.got(), data);
            for i in 0..data {
                ensure_eq!(memory.byte(i), Some(0x5a));
            }
        }
        client.end()
    }

    // covers: The RPC client stores one expected length of a verifier for each security flavour,
    // and uses it for all servers. So a reply from another server can make the head of a reply
    // longer after the memory for the reply was allocated.
    #[test]
    fn a_head_longer_than_its_memory_gets_more() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let data = 5000usize;
        // A server can make the head of a reply longer by at most 102 words. The test also uses
        // longer heads.
        for (read, words) in [(true, 102), (false, 102), (true, 200), (false, 0)] {
            let memory = Memory::new(0, data, false)?.with_longer_head(words);
            let mut memory = if read { memory.of_read() } else { memory };
            for i in 0..data {
                memory.set(i, 0x5a);
            }
            let pending = client.get(memory)?;
            let xid = only(&client)?;
            // CAST: `data` is at most a few thousand.
            let answer = reply(xid, &(data as u32).to_be_bytes())?;
            let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            let shape = pinned.reply();
            ensure_eq!(shape.head_len(), answer.len() + 4 * words as usize);
            // The tail contains the padding and the bytes after the data. The head of this reply is
            // longer than the head for which the buffer was allocated, so the buffer is enlarged.
            // Otherwise the computed length of the tail would be negative, and would be almost
            // 4 GiB as an unsigned number.
            ensure_at_least!(shape.tail_len(), 4);
            ensure_at_least!(PAGE_SIZE, shape.tail_len());
            ensure_eq!(
                shape.part_len(Part::Whole),
                shape.head_len() + data + shape.tail_len()
            );
            if read {
                pinned.place_around(&answer, data)?;
                pinned.complete(answer.len() + data).map_err(|_| EBUSY)?;
                let memory = pending.memory()?;
                ensure_eq!(memory.got(), data);
                ensure_eq!(memory.byte(data - 1), Some(0x5a));
            } else {
                pinned.fail(EXDEV).map_err(|_| EBUSY)?;
                ensure_eq!(pending.wait(), Err(EXDEV));
            }
        }
        client.end()
    }

    #[test]
    fn a_reply_that_is_too_long_is_refused() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        for read in [false, true] {
            let memory = Memory::new(0, 1000, false)?;
            let pending = client.get(if read { memory.of_read() } else { memory })?;
            let xid = only(&client)?;
            let mut pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
            let capacity = pinned.reply().part_len(Part::Whole);
            let long = KVec::from_elem(1u8, capacity + 1, GFP_KERNEL)?;
            ensure_eq!(pinned.place_inline(&long), Err(EMSGSIZE));
            ensure_eq!(pinned.place_around(&long, 10), Err(EMSGSIZE));
            ensure_eq!(pinned.place_around(&long, 1000), Err(EMSGSIZE));
            pinned = match pinned.complete(capacity + 1) {
                Ok(()) => return Err(EINVAL.into()),
                Err(pinned) => pinned,
            };
            pinned.fail(EXDEV).map_err(|_| EBUSY)?;
            ensure_eq!(pending.wait(), Err(EXDEV));
        }
        client.end()
    }

    // covers: A server may claim to have written bytes that it has not written. These bytes do not
    // contain data of other users.
    #[test]
    fn a_reply_that_was_not_placed_is_zero() -> Test {
        // Each slot is used for the first time, so its buffers are new.
        let client = Alone::new()?;
        fate(Fate::Kept);
        let memory = Memory::new(0, 2 * PAGE_SIZE, true)?;
        let pending = client.get(memory)?;
        let xid = only(&client)?;
        let pinned = client.xprt().lookup(xid).ok_or(ENOENT)?;
        // SAFETY: The reply's memory belongs to a pinned request, and no thread writes to it.
        let zero = unsafe { rpc::is_zero(pinned.slot().rqst.get()) };
        ensure!(zero);
        pinned.fail(EXDEV).map_err(|_| EBUSY)?;
        ensure_eq!(pending.wait(), Err(EXDEV));
        client.end()
    }

    #[test]
    fn a_call_that_is_not_answered_times_out() -> Test {
        let client = Alone::soft()?;
        fate(Fate::Kept);
        let result = client.null()?.wait();
        ensure!(result == Err(ETIMEDOUT) || result == Err(EIO));
        ensure!(driver::TIMEOUTS.load(Relaxed) >= 1);
        // The credit of the call was returned.
        ensure!(driver::ABANDONS.load(Relaxed) >= 1);
        client.end()
    }

    #[test]
    fn a_client_may_end_with_calls_under_way() -> Test {
        let client = Alone::new()?;
        fate(Fate::Kept);
        let mut pending = KVec::new();
        for _ in 0..8 {
            pending.push(client.null()?, GFP_KERNEL)?;
        }
        client.wait_kept(4)?;
        drop(pending);
        client.end()
    }
}
