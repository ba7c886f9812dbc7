// SPDX-License-Identifier: GPL-2.0

//! Tests of Receives: messages that arrive, messages whose buffers are kept, and buffers that are
//! posted again.

use super::*;

#[kunit_tests(xprtrdma_qp_receive)]
mod suite {
    use super::*;

    #[test]
    fn messages_come_in_and_receives_are_posted_again() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        for i in 0..50usize {
            // CAST: The number is less than 50.
            let data = [i as u8; 512];
            let data = data.get(..512 - i).unwrap_or(&[]);
            peer.send(Message {
                data,
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 512 - i,
                first: i as u8,
                how: Immediate::None,
            })?;
            // Before the next message is sent, the promised number of Receives is posted again.
            posted_again(&pair)?;
        }
        ensure_eq!(Census::now(), CONNECTED);
        Ok(())
    }

    /// Waits until the handler of the last message has returned, and its buffer was posted again.
    fn posted_again(pair: &Pair) -> Result {
        wait_until(|| pair.owner.receives_posted() >= usize::from(CONFIG.recv_count))
    }

    #[test]
    fn immediate_data_are_told_from_messages() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        peer.send(Message {
            data: b"with",
            immediate: true,
            ..Message::default()
        })?;
        pair.told(Told::Message {
            len: 4,
            first: b'w',
            how: Immediate::WithSend,
        })?;
        // The next message is an RDMA Write with immediate data. The length in its completion
        // counts the bytes that the peer wrote to memory. The Receive's buffer contains no data.
        peer.send(Message {
            data: b"elsewhere",
            immediate: true,
            written: true,
            ..Message::default()
        })?;
        pair.told(Told::Message {
            len: 0,
            first: 0,
            how: Immediate::WithWrite,
        })?;
        Ok(())
    }

    #[test]
    fn a_message_may_be_held() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        pair.keeper.kept.lock().hold = true;
        for i in 0..RECVS as usize {
            let data = [b'a' + i as u8; 100];
            pair.takes(data.get(..1 + i).unwrap_or(&[]))?;
        }
        // The handler keeps all buffers, so no Receive is posted. But all messages have arrived.
        ensure_eq!(pair.owner.receives_posted(), 0);
        ensure_eq!(peer.receives(), 0);
        let held = core::mem::take(&mut pair.keeper.kept.lock().held);
        for (i, message) in held.iter().enumerate() {
            ensure_eq!(message.bytes().len(), 1 + i);
            ensure!(message.bytes().iter().all(|byte| *byte == b'a' + i as u8));
        }
        drop(held);
        ensure_eq!(peer.receives(), RECVS);
        Ok(())
    }

    /// Waits until the handlers of all completions so far have returned.
    fn wait_for_handlers(pair: &Pair) -> Result {
        let probes = pair.keeper.log.count(Told::Probed);
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_probe()?;
        pair.peer().complete(1, SUCCESS);
        pair.keeper.log.wait_times(Told::Probed, probes + 1)
    }

    #[test]
    fn what_was_promised_is_posted_without_another_message() -> Test {
        // The test tries several batch sizes. It keeps messages at the start, at the end or in the
        // middle of the sequence.
        for (batch, total) in [(1, 5), (2, 6), (3, 7), (8, 12)] {
            let config = QpConfig {
                recv_batch: batch,
                ..CONFIG
            };
            for (kept, step) in (0..=total).flat_map(|kept| [1, 11].map(|step| (kept, step))) {
                let pair = Pair::with(&config)?.connect()?;
                let peer = pair.peer();
                for i in 0..total {
                    pair.keeper.kept.lock().hold = i * step % total < kept;
                    pair.takes(&[i as u8])?;
                }
                wait_for_handlers(&pair)?;
                ensure_eq!(pair.owner.receives_posted(), peer.receives() as usize);
                let held = core::mem::take(&mut pair.keeper.kept.lock().held);
                let now = total - held.len();
                ensure_at_least!(pair.owner.receives_posted() + usize::from(batch), now + 1);
                drop(held);
                ensure_at_least!(peer.receives(), u32::from(config.recv_count) + 1);
                ensure_eq!(pair.owner.receives_posted(), peer.receives() as usize);
            }
        }
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_message_is_in_the_receive_that_took_it() -> Test {
        let pair = Pair::connected()?;
        for i in 0..50u8 {
            // Some messages are kept for some time. So the buffers are not always returned in the
            // order in which they were posted.
            pair.keeper.kept.lock().hold = i % 16 == 1;
            pair.peer().send(Message {
                data: &[i; 100],
                last: i % 3 != 0,
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 100,
                first: i,
                how: Immediate::None,
            })?;
            wait_for_handlers(&pair)?;
        }
        let held = core::mem::take(&mut pair.keeper.kept.lock().held);
        ensure_eq!(held.len(), 4);
        for (message, i) in held.iter().zip([1u8, 17, 33, 49]) {
            ensure!(message.bytes().iter().all(|byte| *byte == i));
        }
        Ok(())
    }

    #[test]
    fn held_messages_outlive_the_connection() -> Test {
        let pair = Pair::connected()?;
        pair.keeper.kept.lock().hold = true;
        pair.takes(b"kept")?;
        let keeper = pair.keeper.clone();
        drop(pair);
        // The device's queue pair is destroyed, but the buffers still exist.
        let left = Census::now();
        ensure_eq!((left.qps, left.connections), (0, 0));
        ensure_eq!(left.mappings, PAIR.mappings);
        let held = core::mem::take(&mut keeper.kept.lock().held);
        ensure!(held.iter().all(|message| message.bytes() == b"kept"));
        leaves_nothing!(held);
        Ok(())
    }

    #[test]
    fn a_handler_that_is_late_posts_nothing() -> Test {
        let pair = Pair::connected()?;
        // The buffer of the last message completes a batch when its handler returns.
        for i in 1..=CONFIG.recv_batch {
            pair.keeper.kept.lock().slow = i == CONFIG.recv_batch;
            pair.takes(&[i as u8])?;
        }
        Verb::PostRecv.fail(0);
        drop(pair.owner);
        // The drain posts one Receive. The slow handler returns after the queue is closed, so the
        // batch is not posted.
        ensure_eq!(Verb::PostRecv.calls(), 1);
        Ok(())
    }
}
