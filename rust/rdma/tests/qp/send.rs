// SPDX-License-Identifier: GPL-2.0

//! Tests of the send queue: its free space, the order of the work requests, and which work requests
//! are signalled.

use super::*;

#[kunit_tests(xprtrdma_qp_send)]
mod suite {
    use super::*;

    #[test]
    fn with_less_memory_the_send_ring_is_smaller() -> Test {
        for (least_send_bytes, len) in [(1024, 2048), (3072, 3072)] {
            calm();
            let (id, _log) = routed()?;
            let pd = Pd::alloc(id)?;
            let config = QpConfig {
                least_send_bytes,
                ..CONFIG
            };
            Verb::DmaMap.fail(1);
            let qp = Qp::create(&pd, &config, keeper()?)?;
            ensure_eq!(Census::now(), PAIR);
            ensure!(qp.has_room(len, 1));
            ensure!(!qp.has_room(len + 1, 1));
            // Each of the two Sends uses a quarter of the ring.
            for fill in 0..2 {
                let mut batch = qp.begin(len / 4, 1).map_err(|_| EAGAIN)?;
                batch.buffer().fill(fill);
                batch.post::<Lent>(len / 4, &mut [])?;
            }
            let peer = Peer::of(&qp);
            ensure_eq!(peer.look(0)?.signalled, 1);
            ensure_eq!(peer.look(1)?.signalled, 1);
        }
        Ok(())
    }

    #[test]
    fn what_is_sent_is_what_the_device_reads() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        // Each message has its own length and content. The messages go around the ring several
        // times.
        for i in 0..100usize {
            let len = 1 + i * 37 % 1000;
            // CAST: The number is less than 100.
            pair.send(len, i as u8)?;
            let posted = peer.look(0)?;
            ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_SEND);
            let sent = peer.sent(&posted)?;
            ensure_eq!(sent.len(), len);
            ensure!(sent.iter().all(|byte| usize::from(*byte) == i));
            ensure_eq!(peer.complete(1, SUCCESS), 1);
            if posted.signalled != 0 {
                // After the handler of a signalled post has run, the resources of all earlier posts
                // are free.
                pair.keeper.log.wait(|told| *told == Told::Acknowledged)?;
                wait_for_room(&pair)?;
            }
        }
        Ok(())
    }

    #[test]
    fn a_fenced_message_waits_for_reads() -> Test {
        let pair = Pair::connected()?;
        for (at, fenced) in [(0, false), (1, true), (2, false)] {
            let mut batch = pair.owner.begin(10, 1).map_err(|_| EAGAIN)?;
            if fenced {
                batch.fence();
            }
            batch.post::<Lent>(10, &mut [])?;
            ensure_eq!(pair.peer().look(at)?.fenced, u32::from(fenced));
        }
        Ok(())
    }

    #[test]
    fn a_full_queue_says_when_there_is_room() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut sent = 0;
        while pair.owner.has_room(1000, 1) {
            pair.send(1000, 0)?;
            sent += 1;
        }
        // The ring of 4096 bytes holds four messages, each of which uses 1024 bytes.
        ensure_eq!(sent, 4);
        ensure_eq!(pair.owner.begin(1000, 1).err(), Some(SendError::Full));
        ensure_eq!(pair.keeper.log.count(Told::Space), 0);
        ensure_eq!(peer.complete(sent, SUCCESS), sent);
        pair.told(Told::Space)?;
        wait_for_room(&pair)?;
        pair.send(1000, 0)?;
        // A message longer than the ring never fits.
        ensure_eq!(pair.owner.begin(4097, 1).err(), Some(SendError::Full));
        // A message that needs more work requests than the send queue can hold never fits.
        ensure_eq!(pair.owner.begin(1, 17).err(), Some(SendError::Full));
        Ok(())
    }

    #[test]
    fn whoever_asks_for_room_again_is_told_again() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        // The ring of 4096 bytes holds four messages, each of which uses 1024 bytes and is
        // signalled.
        for i in 0..4 {
            pair.send(1000, i)?;
        }
        ensure_eq!(pair.owner.begin(2000, 1).err(), Some(SendError::Full));
        // The first completion ends the wait for space, although the free space is still too small.
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.told(Told::Space)?;
        ensure!(!pair.owner.has_room(2000, 1));
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.keeper.log.wait_times(Told::Space, 2)?;
        ensure!(pair.owner.has_room(2000, 1));
        // No sender waits any more.
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        wait_for_room(&pair)?;
        ensure_eq!(pair.keeper.log.count(Told::Space), 2);
        Ok(())
    }

    #[test]
    fn every_quarter_of_the_queue_is_signalled() -> Test {
        let pair = Pair::connected()?;
        for i in 0..16 {
            pair.send(1, i)?;
        }
        let peer = pair.peer();
        for i in 0..16 {
            ensure_eq!(peer.look(i)?.signalled != 0, i % 4 == 3);
        }
        ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Full));
        ensure_eq!(peer.complete(16, SUCCESS), 16);
        pair.told(Told::Space)?;
        wait_for_room(&pair)?;
        Ok(())
    }

    #[test]
    fn a_batch_that_is_dropped_changes_nothing() -> Test {
        let pair = Pair::connected()?;
        for _ in 0..100 {
            let mut batch = pair.owner.begin(1000, 5).map_err(|_| EAGAIN)?;
            batch.buffer().fill(1);
            drop(batch);
        }
        ensure_eq!(pair.owner.send_occupancy(), (0, 0));
        ensure_eq!(pair.peer().sends(), 0);
        // A message that is longer than the space reserved for it is refused, and nothing is
        // posted.
        let batch = pair.owner.begin(10, 1).map_err(|_| EAGAIN)?;
        let posted = batch.post::<Lent>(11, &mut []);
        ensure_eq!(posted, Err(EINVAL));
        ensure_eq!(pair.peer().sends(), 0);
        pair.send(10, 0)?;
        Ok(())
    }

    #[test]
    fn a_message_has_bytes() -> Test {
        let pair = Pair::connected()?;
        for max_len in [0, 10] {
            for later in [false, true] {
                let batch = pair.owner.begin(max_len, 1).map_err(|_| EAGAIN)?;
                let posted = match later {
                    false => batch.post::<Lent>(0, &mut []),
                    true => batch.post_later::<Lent>(0, &mut []),
                };
                ensure_eq!(posted, Err(EINVAL));
            }
        }
        pair.send(1, 0)?;
        ensure_eq!(pair.peer().sends(), 1);
        ensure_eq!(pair.peer().look(0)?.len, 1);
        Ok(())
    }

    #[test]
    fn a_post_that_fails_closes_the_queue() -> Test {
        let pair = Pair::connected()?;
        Verb::PostSend.fail(1);
        ensure_eq!(pair.send(100, 0), Err(EAGAIN));
        ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Closed));
        // The post failed, so no completion is outstanding.
        ensure!(pair.owner.has_room(1, 1));
        leaves_nothing!(pair);
        Ok(())
    }

    #[test]
    fn a_probe_is_acknowledged() -> Test {
        let pair = Pair::connected()?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_probe()?;
        let posted = pair.peer().look(0)?;
        ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_RDMA_WRITE);
        ensure_eq!((posted.len, posted.signalled), (0, 1));
        pair.peer().complete(1, SUCCESS);
        pair.told(Told::Probed)?;
        // Without space for a work request no probe is posted.
        let batch = pair.owner.begin(0, 0).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_probe(), Err(E2BIG));
        ensure_eq!(pair.peer().sends(), 0);
        Ok(())
    }

    #[test]
    fn each_confirmed_message_is_confirmed() -> Test {
        let pair = Pair::connected()?;
        // Each message for which a confirmation is requested is sent between two unsignalled
        // messages.
        for _ in 0..3 {
            pair.send(10, 1)?;
            let batch = pair.owner.begin(10, 1).map_err(|_| EAGAIN)?;
            batch.post_confirmed::<Lent>(10, &mut [])?;
            pair.send(10, 2)?;
        }
        let signalled = (0..9).filter(|at| pair.peer().look(*at).is_ok_and(|p| p.signalled != 0));
        ensure_eq!(signalled.count(), 3);
        pair.peer().complete(9, SUCCESS);
        pair.keeper.log.wait_times(Told::Confirmed, 3)?;
        ensure_eq!(pair.keeper.log.count(Told::Acknowledged), 0);
        Ok(())
    }
}
