// SPDX-License-Identifier: GPL-2.0

//! Tests of messages that are posted together with one doorbell.

use super::*;

#[kunit_tests(xprtrdma_qp_doorbell)]
mod suite {
    use super::*;

    #[test]
    fn messages_share_a_doorbell() -> Test {
        let mut at_once = false;
        for _ in 0..20 {
            let pair = Pair::connected()?;
            let before = Verb::PostSend.calls();
            for i in 0..4 {
                pair.send_later(10 + usize::from(i), i)?;
            }
            // After these messages no other work request is posted, so only the work item can ring
            // the doorbell.
            pair.rung_for(4)?;
            let peer = pair.peer();
            for i in 0..4u8 {
                let sent = peer.sent(&peer.look(i.into())?)?;
                ensure_eq!(sent.len(), 10 + usize::from(i));
                ensure!(sent.iter().all(|byte| *byte == i));
            }
            ensure_eq!(peer.complete(4, SUCCESS), 4);
            wait_for_room(&pair)?;
            // All messages are posted together, unless this thread was interrupted between the
            // messages.
            at_once |= Verb::PostSend.calls() - before == 1;
        }
        ensure!(at_once);
        Ok(())
    }

    #[test]
    fn after_a_message_that_waited_alone_none_waits_for_a_while() -> Test {
        let pair = Pair::connected()?;
        let may_batch = || -> Result<bool> {
            let mut batch = pair.owner.begin(1, 1).map_err(|_| EAGAIN)?;
            Ok(batch.may_batch())
        };
        for _ in 0..2 {
            ensure!(may_batch()?);
            pair.send_later(10, 1)?;
            pair.rung_for(1)?;
            let mut refused = 0;
            while !may_batch()? {
                refused += 1;
                ensure_at_least!(1000, refused);
            }
            ensure_at_least!(refused, 1);
            ensure_eq!(pair.peer().complete(1, SUCCESS), 1);
        }
        Ok(())
    }

    #[test]
    fn what_waits_goes_before_what_does_not() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        pair.send_later(10, 1)?;
        pair.send(20, 2)?;
        ensure_eq!(peer.sends(), 2);
        ensure_eq!((peer.look(0)?.len, peer.look(1)?.len), (10, 20));
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        pair.send_later(30, 3)?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_probe()?;
        ensure_eq!(peer.sends(), 2);
        ensure_eq!(peer.look(0)?.len, 30);
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        pair.told(Told::Probed)?;
        Ok(())
    }

    #[test]
    fn a_region_is_registered_before_it_is_invalidated() -> Test {
        let pair = Pair::connected()?;
        let mut region = pair.map(0, PAGE_SIZE, Access::RemoteRead)?;
        pair.post_later(&mut region)?;
        pair.post_invalidate(7, &mut region)?;
        let key = region.window().handle;
        pair.keeper.kept.lock().exposed = Some(region);
        let peer = pair.peer();
        ensure_eq!(peer.sends(), 3);
        let (first, last) = (peer.look(0)?, peer.look(2)?);
        ensure_eq!(first.opcode, bindings::ib_wr_opcode_IB_WR_REG_MR);
        ensure_eq!(last.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
        ensure_eq!((first.key, last.key), (key, key));
        ensure_eq!(peer.complete(3, SUCCESS), 3);
        pair.told(Told::Invalidated(7))?;
        ensure!(pair.keeper.kept.lock().back.is_some());
        Ok(())
    }

    #[test]
    fn the_longest_message_always_finds_places() -> Test {
        let mut at_once = false;
        for _ in 0..20 {
            let pair = Pair::connected()?;
            for i in 0..5 {
                pair.send_later(10, i)?;
            }
            // Up to four messages may wait for the doorbell. So posting the fifth message rings the
            // doorbell, unless the work item has rung the doorbell in the meantime.
            at_once |= pair.peer().sends() == 5;
            pair.rung_for(5)?;
        }
        ensure!(at_once);
        let pair = Pair::connected()?;
        // If the send queue has too few free entries for all regions of a message, neither the
        // message nor a region is posted.
        let mut regions = KVec::new();
        for _ in 0..8 {
            regions.push(pair.map(0, PAGE_SIZE, Access::RemoteRead)?, GFP_KERNEL)?;
        }
        let batch = pair.owner.begin(64, 9).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_later(64, &mut regions), Err(ENOSPC));
        ensure_eq!(pair.peer().sends(), 0);
        Ok(())
    }

    #[test]
    fn the_end_takes_back_what_waits() -> Test {
        for _ in 0..20 {
            let pair = Pair::connected()?;
            pair.send_later(10, 1)?;
            drop(pair);
            // After the drop the work item holds no reference to the queue pair, so nothing exists
            // on the device.
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn a_doorbell_that_fails_later_is_told() -> Test {
        let pair = Pair::connected()?;
        Verb::PostSend.fail(1);
        pair.send_later(10, 1)?;
        let failed = WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR);
        pair.told(Told::Broken(failed))?;
        ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Closed));
        leaves_nothing!(pair);
        Ok(())
    }
}
