// SPDX-License-Identifier: GPL-2.0

//! A queue pair is created, connected, and destroyed.

use super::*;
use kernel::error::to_result;

#[kunit_tests(xprtrdma_qp)]
mod suite {
    use super::*;

    // covers: V1-018, V1-019, BC-07: every Receive is posted before the peer learns of the
    // connection.
    #[test]
    fn a_queue_pair_comes_and_goes() -> Test {
        let pair = Pair::new()?;
        ensure_eq!(Census::now(), PAIR);
        ensure_eq!(pair.peer().receives(), RECVS);
        ensure_eq!(pair.owner.receives_posted(), RECVS as usize);
        ensure_eq!(pair.owner.send_occupancy(), (0, 0));
        leaves_nothing!(pair);
        Ok(())
    }

    #[test]
    fn an_id_has_one_queue_pair() -> Test {
        let Pair { owner, pd, .. } = Pair::new()?;
        ensure_eq!(Qp::create(&pd, &CONFIG, keeper()?).err(), Some(EBUSY));
        ensure_eq!(Census::now(), PAIR);
        drop(owner);
        ensure_eq!(Qp::create(&pd, &CONFIG, keeper()?).err(), Some(EBUSY));
        Ok(())
    }

    #[test]
    fn buffers_have_bytes() -> Test {
        for (send_bytes, recv_size) in [(0, 512), (4096, 0)] {
            let config = QpConfig {
                send_bytes,
                recv_size,
                ..CONFIG
            };
            ensure_eq!(Pair::with(&config).err(), Some(EINVAL));
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn its_parts_may_be_dropped_in_every_order() -> Test {
        // The four objects of a queue pair (owner, handle, protection domain, CM id) can be dropped
        // in all 24 orders, whether the queue pair is connected or not.
        for connected in [false, true] {
            for number in 0..24usize {
                let pair = if connected {
                    Pair::connected()?
                } else {
                    Pair::new()?
                };
                let Pair {
                    owner,
                    keeper,
                    pd,
                    id,
                    ..
                } = pair;
                let mut handle = Some(owner.handle());
                let (mut owner, mut pd, mut id) = (Some(owner), Some(pd), Some(id));
                drop(keeper);
                let (mut left, mut code) = ([0usize, 1, 2, 3], number);
                for len in (1..=4).rev() {
                    let at = code % len;
                    code /= len;
                    match left[at] {
                        0 => drop(owner.take()),
                        1 => drop(handle.take()),
                        2 => drop(pd.take()),
                        _ => drop(id.take()),
                    }
                    // The dropped object is removed from the list `left`, and the later objects
                    // move forward by one entry.
                    left.copy_within(at + 1.., at);
                }
                ensure_eq!(Census::now(), Census::NOTHING);
            }
        }
        Ok(())
    }

    #[test]
    fn a_device_that_fails_leaves_nothing() -> Test {
        calm();
        // Creating a queue pair takes several calls of verbs. The test makes each of these calls
        // fail once.
        for (verb, calls) in [
            (Verb::CreateCq, 1),
            (Verb::CreateQp, 1),
            (Verb::ModifyQp, 1),
            (Verb::DmaMap, 1 + RECVS),
            (Verb::PostRecv, 1),
        ] {
            for nth in 1..=calls {
                let (id, _log) = routed()?;
                let pd = Pd::alloc(id)?;
                verb.fail(nth);
                let failed = Qp::create(&pd, &CONFIG, keeper()?).err();
                let (made, expected) = (
                    verb.calls(),
                    if verb == Verb::DmaMap { EIO } else { EAGAIN },
                );
                calm();
                if failed != Some(expected) || made < nth {
                    pr_err!("{verb:?} {nth}: {failed:?} after {made} calls\n");
                    return Err(EINVAL.into());
                }
                ensure_eq!(
                    Census::now(),
                    Census {
                        pds: 1,
                        ..Census::NOTHING
                    }
                );
            }
            // Each call of this verb has failed once. Now no call fails, so the creation succeeds.
            let (id, _log) = routed()?;
            let pd = Pd::alloc(id)?;
            verb.fail(0);
            let qp = Qp::create(&pd, &CONFIG, keeper()?)?;
            ensure_eq!(verb.calls(), calls);
            drop(qp);
        }
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_queue_pair_without_memory_leaves_nothing() -> Test {
        calm();
        let errors = each_allocation(
            || {
                let (id, _log) = routed()?;
                Ok((Pd::alloc(id)?, keeper()?))
            },
            |(pd, keeper)| Qp::create(pd, &CONFIG, keeper.clone()).map(drop),
            |(pd, keeper)| {
                ensure_eq!(
                    Census::now(),
                    Census {
                        pds: 1,
                        ..Census::NOTHING
                    }
                );
                leaves_nothing!(pd, keeper);
                Ok(())
            },
        )?;
        // In each run a different allocation fails. Among these allocations are the device's two
        // queues, its completion queue, the ring, the buffers, the lists and the object of the
        // queue pair. There may be more.
        ensure_at_least!(errors, 7 + RECVS as usize);
        Ok(())
    }

    #[test]
    fn a_connection_comes_up_and_goes() -> Test {
        let pair = Pair::connected()?;
        ensure_eq!(Census::now(), CONNECTED);
        ensure_eq!(&*connect_data(), &b"12345678"[..]);
        // `depth` is the number of RDMA Reads that this end may serve. The fake device and
        // InfiniBand devices report this number in different fields of the event.
        pair.events.wait(|e| {
            *e == Seen::Established {
                greeting: true,
                depth: 4,
            }
        })?;
        pair.id.disconnect()?;
        pair.events.wait(|e| *e == Seen::Disconnected)?;
        leaves_nothing!(pair);
        Ok(())
    }

    #[test]
    fn a_refused_connection_leaves_nothing() -> Test {
        let pair = Pair::new()?;
        Answer::Refuses.always();
        pair.id.connect(&REQUEST)?;
        pair.events.wait(|e| matches!(e, Seen::Rejected(_)))?;
        ensure_eq!(Census::now(), PAIR);
        leaves_nothing!(pair);
        Ok(())
    }

    #[test]
    fn a_late_answer_is_an_answer() -> Test {
        for how in [Answer::Accepts, Answer::Refuses] {
            let pair = Pair::new()?;
            Answer::IsSilent.always();
            pair.id.connect(&REQUEST)?;
            ensure_eq!(Census::now(), CONNECTED);
            pair.peer().answer(how)?;
            pair.events
                .wait(|e| matches!(e, Seen::Established { .. } | Seen::Rejected(_)))?;
            leaves_nothing!(pair);
        }
        Ok(())
    }

    #[test]
    fn a_device_that_cannot_connect_leaves_nothing() -> Test {
        let pair = Pair::new()?;
        Verb::Connect.fail(1);
        ensure!(pair.id.connect(&REQUEST).is_err());
        ensure_eq!(Census::now(), PAIR);
        leaves_nothing!(pair);
        Ok(())
    }

    #[test]
    fn a_connect_request_without_memory_leaves_nothing() -> Test {
        calm();
        let errors = each_allocation(
            Pair::new,
            |pair| pair.id.connect(&REQUEST),
            |pair| {
                leaves_nothing!(pair);
                Ok(())
            },
        )?;
        ensure_at_least!(errors, 1);
        Ok(())
    }

    #[test]
    fn work_in_flight_ends_with_the_owner() -> Test {
        let pair = Pair::connected()?;
        for i in 0..10 {
            pair.send(50, i)?;
        }
        let region = pair.expose_without_work()?;
        let handle = pair.owner.handle();
        drop(pair.owner);
        // The region was not posted, and the queue is closed, so the region may be freed.
        ensure_eq!(handle.begin(1, 1).err(), Some(SendError::Closed));
        let given_back = region.lender().given_back();
        drop(region);
        ensure_eq!(given_back.load(kernel::sync::atomic::Relaxed), 1);
        drop(handle);
        drop((pair.pd, pair.id));
        drop(pair.keeper);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    // The destruction of a queue pair can fail: some drivers report an error if their device has
    // not destroyed the queue pair.
    #[test]
    fn a_queue_pair_that_is_not_destroyed_keeps_everything() -> Test {
        let mut pair = Pair::connected()?;
        let region = pair.expose_without_work()?;
        let given_back = region.lender().given_back();
        let handle = pair.owner.handle();
        let raw = handle.raw_qp();
        Verb::DestroyQp.fail(1);
        pair.owner.shut_down();
        let Err(region) = region.drained() else {
            return Err(EINVAL.into());
        };
        let pd = pair.pd.clone();
        drop((pair.owner, pair.pd, pair.id, pair.keeper));
        let lost = Arc::into_raw(handle);
        let left = Census::now();
        ensure_eq!((left.qps, left.cqs, left.pds, left.mrs), (1, 1, 1, 1));
        ensure_eq!(left.mappings, PAIR.mappings + 1);
        ensure_eq!(given_back.load(Relaxed), 0);
        ensure!(!pd.is_drained());
        // Destroys the queue pair, which was leaked because its first destruction failed.
        // SAFETY: The queue pair exists, and no other thread destroys it.
        to_result(unsafe { bindings::ib_destroy_qp_user(raw, core::ptr::null_mut()) })?;
        pd.set_drained();
        drop(region);
        ensure_eq!(given_back.load(Relaxed), 1);
        // SAFETY: Two references are left: that of this test, and the one that was leaked on
        // purpose.
        drop(unsafe { Arc::from_raw(lost) });
        // SAFETY: Two references are left: that of this test, and the one that was leaked on
        // purpose.
        drop(unsafe { Arc::from_raw(lost) });
        leaves_nothing!(pd);
        Ok(())
    }

    #[test]
    fn memory_is_back_before_the_queue_pair_is_destroyed() -> Test {
        for (device, death, qps) in [
            (Kind::Stops, Death::None, 1),
            // The device does not report that the queue pair has stopped, or the report is not
            // trusted. So only the destruction of the queue pair ends the device's accesses to
            // memory.
            (Kind::Stops, Death::NoModify, 0),
            (Kind::Plain, Death::None, 0),
        ] {
            let mut pair = Pair::on(device, &CONFIG)?.connect()?;
            pair.send(50, 1)?;
            let region = pair.expose_without_work()?;
            let region = region.drained().err().ok_or(EINVAL)?;
            death.comes();
            pair.owner.shut_down();
            ensure_eq!(Census::now().qps, qps);
            ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Closed));
            let given_back = region.lender().given_back();
            let (idle, lender) = region.drained().ok().ok_or(EINVAL)?;
            drop(lender);
            ensure_eq!(given_back.load(kernel::sync::atomic::Relaxed), 1);
            ensure_eq!((Census::now().qps, Census::now().mrs), (qps, 1));
            drop(pair.owner);
            ensure_eq!((Census::now().qps, Census::now().mrs), (0, 1));
            drop(idle);
            drop((pair.pd, pair.id));
            drop(pair.keeper);
            calm();
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn a_queue_pair_that_flushed_nothing_is_destroyed_at_once() -> Test {
        let mut pair = Pair::on(Kind::Stops, &CONFIG)?.connect()?;
        pair.keeper.kept.lock().hold = true;
        for first in 1..=RECVS {
            pair.takes(&[first as u8])?;
        }
        ensure_eq!(pair.owner.receives_posted(), 0);
        pair.owner.shut_down();
        ensure_eq!(Census::now().qps, 0);
        pair.keeper.kept.lock().held.clear();
        leaves_nothing!(pair);
        Ok(())
    }

    #[test]
    fn no_handler_outlives_the_owner_of_a_queue_pair_that_is_not_drained() -> Test {
        for death in [Death::NoModify, Death::NoPost] {
            let pair = Pair::connected()?;
            pair.be_slow_with_a_message()?;
            // Usually the drop of the last reference to the queue pair waits for the completion
            // queue. Here the test keeps a reference, `handle`. So the drop of the owner must wait
            // instead.
            let handle = pair.owner.handle();
            death.comes();
            drop(pair.owner);
            ensure_eq!(returned(&pair.keeper), 1);
            drop((handle, pair.pd, pair.id));
            calm();
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }
}
