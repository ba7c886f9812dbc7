// SPDX-License-Identifier: GPL-2.0

//! Failures of queue pairs, and the reports to the handler.

use super::*;

#[kunit_tests(xprtrdma_qp_failure)]
mod suite {
    use super::*;

    #[test]
    fn the_peer_may_end_the_connection_at_any_time() -> Test {
        let pair = Pair::connected()?;
        for i in 0..3 {
            pair.send(100, i)?;
        }
        pair.peer().close()?;
        pair.told(Told::Broken(WcStatus(FLUSHED)))?;
        pair.events.wait(|e| *e == Seen::Disconnected)?;
        let failure = pair.owner.failure();
        let first = failure.first.map(|work| work.status);
        ensure_eq!((first, failure.reason), (Some(WcStatus::FLUSHED), None));
        let keeper = pair.keeper.clone();
        leaves_nothing!(pair);
        // The failure is reported once, however many work requests failed.
        ensure_eq!(keeper.log.count(Told::Broken(WcStatus(FLUSHED))), 1);
        Ok(())
    }

    #[test]
    fn a_receive_that_fails_is_told_once() -> Test {
        let pair = Pair::connected()?;
        pair.peer().send(Message {
            status: bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
            ..Message::default()
        })?;
        pair.told(Told::Broken(WcStatus::LOCAL_LENGTH))?;
        let failed = Some(FailedWork {
            opcode: Opcode::Recv,
            status: WcStatus::LOCAL_LENGTH,
            vendor_err: 0,
        });
        ensure_eq!(
            (pair.owner.failure().first, pair.owner.failure().reason),
            (failed, failed)
        );
        let keeper = pair.keeper.clone();
        drop(pair);
        ensure_eq!(keeper.log.count(Told::Broken(WcStatus::FLUSHED)), 0);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_send_that_fails_is_told_once() -> Test {
        let pair = Pair::connected()?;
        pair.send(10, 0)?;
        let status = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR;
        ensure_eq!(pair.owner.failure(), Failure::default());
        ensure_eq!(pair.peer().complete(1, status), 1);
        pair.told(Told::Broken(WcStatus::RETRY_EXCEEDED))?;
        let (keeper, handle) = (pair.keeper.clone(), pair.owner.handle());
        drop(pair);
        // The work requests that the shutdown flushes are reported later than the failed Send, so
        // they do not change the recorded failure.
        let failed = Some(FailedWork {
            opcode: Opcode::Send,
            status: WcStatus::RETRY_EXCEEDED,
            vendor_err: bindings::FAKE_VENDOR_ERR,
        });
        ensure_eq!(
            (handle.failure().first, handle.failure().reason),
            (failed, failed)
        );
        ensure_eq!(keeper.log.count(Told::Broken(WcStatus::FLUSHED)), 0);
        Ok(())
    }

    // The device reports no opcode for a work request that fails, and flushes the later work
    // requests.
    #[test]
    fn the_kind_of_the_first_that_fails_is_told() -> Test {
        const ALONE: &[Opcode] = &[
            Opcode::RegMr,
            Opcode::Send,
            Opcode::LocalInv,
            Opcode::RdmaWrite,
        ];
        const FENCED: &[Opcode] = &[
            Opcode::LocalInv,
            Opcode::RegMr,
            Opcode::Send,
            Opcode::LocalInv,
            Opcode::RdmaWrite,
        ];
        let status = bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR;
        for (kind, order) in [(Kind::Plain, ALONE), (Kind::Fenced, FENCED)] {
            for (good, opcode) in (0..).zip(order) {
                for later in [false, true] {
                    let pair = Pair::on(kind, &CONFIG)?.connect()?;
                    let mut region = pair.map(0, 1000, Access::RemoteWrite)?;
                    match later {
                        false => pair.post(&mut region)?,
                        true => pair.post_later(&mut region)?,
                    }
                    pair.post_invalidate(7, &mut region)?;
                    let probe = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
                    probe.post_probe()?;
                    let peer = pair.peer();
                    ensure_eq!(peer.sends() as usize, order.len());
                    ensure_eq!(peer.complete(good, SUCCESS), good);
                    ensure_eq!(peer.complete(1, status), 1);
                    pair.told(Told::Broken(WcStatus(status)))?;
                    let failed = Some(FailedWork {
                        opcode: *opcode,
                        status: WcStatus(status),
                        vendor_err: bindings::FAKE_VENDOR_ERR,
                    });
                    let failure = pair.owner.failure();
                    ensure_eq!((failure.first, failure.reason), (failed, failed));
                    drop(pair.owner);
                    drop(region);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_first_event_of_a_failure_is_kept() -> Test {
        let pair = Pair::connected()?;
        for (event, kept) in [
            (bindings::ib_event_type_IB_EVENT_COMM_EST, None),
            (
                bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
                Some(bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR),
            ),
            (
                bindings::ib_event_type_IB_EVENT_QP_FATAL,
                Some(bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR),
            ),
        ] {
            let qp = pair.owner.raw_qp();
            let mut event = bindings::ib_event {
                event,
                ..Default::default()
            };
            // SAFETY: The queue pair is valid. The handler gets the arguments that a device passes.
            unsafe {
                // CAST: The union `element` holds the pointer as 64 bits.
                event.element.bindgen_union_field = qp as u64;
                let handler = (*qp).event_handler.ok_or(EINVAL)?;
                handler(&mut event, (*qp).qp_context);
            }
            ensure_eq!(pair.owner.failure().event, kept);
        }
        Ok(())
    }

    #[test]
    fn receives_that_cannot_be_posted_again_break_the_connection() -> Test {
        let mut pair = Pair::on(Kind::Stops, &CONFIG)?.connect()?;
        Verb::PostRecv.fail(1);
        for _ in 0..CONFIG.recv_batch {
            pair.peer().send(Message {
                data: b"x",
                ..Message::default()
            })?;
            pair.keeper
                .log
                .wait(|told| matches!(told, Told::Message { .. }))?;
        }
        let status = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR;
        pair.told(Told::Broken(WcStatus(status)))?;
        // It is not known which Receives the device has accepted. So the test shuts the queue pair
        // down before it checks that nothing is left.
        pair.owner.shut_down();
        ensure_eq!(Census::now().qps, 0);
        leaves_nothing!(pair);
        Ok(())
    }

    // A thread that drops a kept message may hold a lock that handlers also take. So the drop must
    // not call a handler.
    #[test]
    fn kept_receives_that_cannot_be_posted_again_break_it_too() -> Test {
        let pair = Pair::connected()?;
        pair.keeper.kept.lock().hold = true;
        for first in [1, 2] {
            pair.takes(&[first])?;
        }
        let status = Told::Broken(WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR));
        Verb::PostRecv.fail(1);
        {
            let mut kept = pair.keeper.kept.lock();
            kept.held.clear();
            ensure_eq!(Verb::PostRecv.calls(), 1);
        }
        pair.told(status)?;
        leaves_nothing!(pair);
        Ok(())
    }
}
