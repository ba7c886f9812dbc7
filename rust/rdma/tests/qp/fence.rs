// SPDX-License-Identifier: GPL-2.0

//! Tests of fences, on a device that is known to execute a registration a second time when it
//! retransmits.

use super::*;

/// Creates a queue pair on a device that is known to execute registrations a second time. The peer
/// does not acknowledge the first message.
fn unacknowledged() -> Result<Pair> {
    let pair = Pair::on(Kind::Fenced, &CONFIG)?.connect()?;
    pair.send(10, 1)?;
    ensure_eq!(pair.peer().run_ahead(), 1);
    Ok(pair)
}

#[kunit_tests(xprtrdma_qp_fence)]
mod suite {
    use super::*;

    #[test]
    fn a_registration_is_not_executed_again() -> Test {
        for later in [false, true] {
            let pair = unacknowledged()?;
            let peer = pair.peer();
            let mut region = pair.map(0, PAGE_SIZE, Access::RemoteWrite)?;
            let window = region.window();
            match later {
                false => pair.post(&mut region)?,
                true => pair.post_later(&mut region)?,
            }
            // The send queue contains four work requests: the first message, the fence, the
            // registration, the second message.
            pair.rung_for(4)?;
            pair.keeper.kept.lock().exposed = Some(region);
            // The device starts only the first message, because the fence waits.
            ensure_eq!(peer.run_ahead(), 1);
            ensure!(peer.write(window.handle, window.offset, b"early").is_err());
            ensure_eq!(peer.complete(1, SUCCESS), 1);
            peer.run_ahead();
            peer.write(window.handle, window.offset, b"answer")?;
            answer(&pair, b"told", &window)?;
            let back = pair.keeper.kept.lock().back.take();
            let (mr, lent) = back.ok_or(EINVAL)?;
            ensure_eq!(peer.send_again(), 0);
            ensure!(peer.write(window.handle, window.offset, b"late").is_err());
            // If the region is registered a second time, the second registration also has a fence.
            let mut region = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
            pair.post(&mut region)?;
            peer.run_ahead();
            ensure_eq!(peer.send_again(), 0);
            ensure_at_least!(peer.complete(9, SUCCESS), 1);
            ensure_eq!(Census::now().violations, 0);
            drop(pair.owner);
            drop(region);
        }
        Ok(())
    }

    // If two messages are posted together, the registrations of both messages follow one fence and
    // precede both Sends.
    #[test]
    fn messages_in_a_chain_share_a_fence() -> Test {
        for _ in 0..20 {
            let pair = unacknowledged()?;
            let peer = pair.peer();
            let (mut regions, mut windows) = (KVec::new(), KVec::new());
            for first in [0, 500] {
                let region = pair.map(first, 100, Access::RemoteWrite)?;
                windows.push(region.window(), GFP_KERNEL)?;
                regions.push(region, GFP_KERNEL)?;
            }
            let before = Verb::PostSend.calls();
            for region in &mut regions {
                pair.post_later(region)?;
            }
            // If the two messages are posted separately, each message needs three work requests: a
            // fence, a registration and a Send.
            wait_until(|| peer.sends() >= 6)?;
            if Verb::PostSend.calls() - before > 1 {
                // The messages were posted separately, because this thread was interrupted. So the
                // test repeats the attempt.
                drop(pair.owner);
                drop(regions);
                continue;
            }
            for (at, opcode) in [
                (1, bindings::ib_wr_opcode_IB_WR_LOCAL_INV),
                (2, bindings::ib_wr_opcode_IB_WR_REG_MR),
                (3, bindings::ib_wr_opcode_IB_WR_REG_MR),
                (4, bindings::ib_wr_opcode_IB_WR_SEND),
                (5, bindings::ib_wr_opcode_IB_WR_SEND),
            ] {
                let posted = peer.look(at)?;
                ensure_eq!(posted.opcode, opcode);
            }
            // The fence waits for the preceding message.
            ensure_eq!(peer.run_ahead(), 1);
            for window in &windows {
                ensure!(peer.write(window.handle, window.offset, b"early").is_err());
            }
            ensure_eq!(peer.complete(1, SUCCESS), 1);
            peer.run_ahead();
            for window in &windows {
                peer.write(window.handle, window.offset, b"answer")?;
            }
            ensure_eq!(peer.send_again(), 0);
            peer.complete(9, SUCCESS);
            ensure_eq!(Census::now().violations, 0);
            drop(pair.owner);
            drop(regions);
            return Ok(());
        }
        Err(ETIMEDOUT.into())
    }

    #[test]
    fn a_fence_takes_room_and_is_none_without_registrations() -> Test {
        let pair = Pair::on(Kind::Fenced, &CONFIG)?.connect()?;
        let peer = pair.peer();
        pair.send(10, 1)?;
        ensure_eq!(peer.sends(), 1);
        let mut region = pair.map(0, 100, Access::RemoteWrite)?;
        pair.post(&mut region)?;
        ensure_eq!(peer.sends(), 4);
        ensure_eq!(pair.owner.send_occupancy().1, 4);
        // The queue has space for sixteen work requests, and contains four. One of the remaining
        // twelve places is reserved for a fence.
        ensure!(pair.owner.has_room(10, 11));
        ensure!(!pair.owner.has_room(10, 12));
        peer.complete(4, SUCCESS);
        drop(pair.owner);
        drop(region);
        Ok(())
    }

    #[test]
    fn a_fence_goes_with_its_queue_pair() -> Test {
        let pair = Pair::on(Kind::Fenced, &CONFIG)?;
        ensure_eq!(Census::now(), Census { mrs: 1, ..PAIR });
        leaves_nothing!(pair);
        calm();
        Kind::Fenced.always();
        let (id, _log) = routed()?;
        let pd = Pd::alloc(id)?;
        Verb::AllocMr.fail(1);
        ensure_eq!(Qp::create(&pd, &CONFIG, keeper()?).err(), Some(EAGAIN));
        leaves_nothing!(pd);
        Ok(())
    }
}
