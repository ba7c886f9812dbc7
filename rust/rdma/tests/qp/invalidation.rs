// SPDX-License-Identifier: GPL-2.0

//! Tests which invalidations prove that the peer can no longer access a region.

use super::*;

#[kunit_tests(xprtrdma_qp_invalidation)]
mod suite {
    use super::*;

    #[test]
    fn a_region_comes_back_when_it_is_invalidated_here() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut region = pair.expose(Access::RemoteWrite)?;
        let window = region.window();
        let given_back = region.lender().given_back();
        // The memory crosses a page border.
        let data = [0xa5u8; 100];
        peer.write(window.handle, window.offset + PAGE_SIZE as u64 - 150, &data)?;
        ensure!(peer.read(window.handle, window.offset, 1).is_err());
        pair.post_invalidate(77, &mut region)?;
        pair.keeper.kept.lock().exposed = Some(region);
        let posted = peer.look(0)?;
        ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
        ensure_eq!((posted.key, posted.signalled), (window.handle, 1));
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.told(Told::Invalidated(77))?;
        ensure!(peer.write(window.handle, window.offset, b"late").is_err());
        let back = pair.keeper.kept.lock().back.take();
        let (mr, lent) = back.ok_or(EINVAL)?;
        // After the invalidation the CPU reads the bytes that the device has written.
        let written = lent.bytes().get(PAGE_SIZE - 50..PAGE_SIZE + 50);
        ensure_eq!(written, Some(&data[..]));
        ensure_eq!(given_back.load(kernel::sync::atomic::Relaxed), 0);
        ensure_eq!(Census::now().mappings, CONNECTED.mappings);
        drop((mr, lent));
        Ok(())
    }

    #[test]
    fn a_region_comes_back_when_the_peer_invalidates_it() -> Test {
        for access in [Access::RemoteWrite, Access::RemoteRead] {
            let pair = Pair::connected()?;
            let peer = pair.peer();
            let region = pair.expose(access)?;
            let window = region.window();
            pair.keeper.kept.lock().exposed = Some(region);
            // A message with another key, without an invalidation, or with another offset proves
            // nothing.
            let other = window.handle.wrapping_add(0x100);
            invalidate(&pair, &repeating(b"1", window.offset)?, other)?;
            invalidate(&pair, b"2", window.handle)?;
            for wrong in [window.offset ^ 1 << 62, window.offset ^ 1 << 13, 100] {
                invalidate(&pair, &repeating(b"3", wrong)?, window.handle)?;
            }
            ensure!(pair.keeper.kept.lock().back.is_none());
            answer(&pair, b"4", &window)?;
            let back = pair.keeper.kept.lock().back.take();
            let (mr, lent) = back.ok_or(EINVAL)?;
            ensure!(peer.write(window.handle, window.offset, b"late").is_err());
            ensure_eq!(Census::now().mappings, CONNECTED.mappings);
            // When the same region is mapped a second time, it has a different key.
            let exposed = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
            ensure!(exposed.window().handle != window.handle);
        }
        Ok(())
    }

    // The caller claims that a message contains a number that the peer could not foresee. The claim
    // can be wrong. So it is accepted only for a region that the peer can read but not write. If
    // the claim is wrong, the peer can at worst still read this memory.
    #[test]
    fn the_word_of_the_caller_is_taken_for_what_the_peer_may_read() -> Test {
        for (access, taken) in [(Access::RemoteRead, true), (Access::RemoteWrite, false)] {
            let pair = Pair::connected()?;
            let region = pair.expose(access)?;
            let window = region.window();
            {
                let mut kept = pair.keeper.kept.lock();
                kept.exposed = Some(region);
                kept.unforeseen = true;
            }
            invalidate(&pair, b"told", window.handle)?;
            ensure_eq!(pair.keeper.kept.lock().back.take().is_some(), taken);
            let region = pair.keeper.kept.lock().exposed.take();
            drop(pair.owner);
            drop(region);
        }
        Ok(())
    }

    #[test]
    fn an_offset_may_be_anywhere_in_a_message_and_whole() -> Test {
        let pair = Pair::connected()?;
        let region = pair.expose(Access::RemoteWrite)?;
        let window = region.window();
        pair.keeper.kept.lock().exposed = Some(region);
        let bytes = window.offset.to_be_bytes();
        // The first message contains the offset, but not at a word border. The next two messages
        // contain only a part of the offset, or nothing.
        let mut message = KVec::from_elem(0u8, 3, GFP_KERNEL)?;
        message.extend_from_slice(&bytes, GFP_KERNEL)?;
        invalidate(&pair, &message, window.handle)?;
        invalidate(&pair, &bytes[..7], window.handle)?;
        invalidate(&pair, &[], window.handle)?;
        ensure!(pair.keeper.kept.lock().back.is_none());
        answer(&pair, &[7; 500], &window)?;
        ensure!(pair.keeper.kept.lock().back.take().is_some());
        Ok(())
    }

    #[test]
    fn an_invalidation_is_no_proof_for_what_waits() -> Test {
        // The attempt is repeated, because the work item may ring the doorbell before this thread
        // cancels the work item.
        for _ in 0..20 {
            let pair = Pair::connected()?;
            let peer = pair.peer();
            let mut region = pair.map(0, PAGE_SIZE, Access::RemoteWrite)?;
            pair.post_later(&mut region)?;
            let silent = Qp::cancel_doorbell_work(&pair.owner);
            let window = region.window();
            pair.keeper.kept.lock().exposed = Some(region);
            if silent {
                ensure_eq!(peer.sends(), 0);
                // The peer sends the message that it would send if it had guessed the key and the
                // offset.
                answer(&pair, b"guessed", &window)?;
                ensure!(pair.keeper.kept.lock().back.is_none());
                pair.send(10, 1)?;
            }
            pair.rung_for(if silent { 3 } else { 2 })?;
            ensure_at_least!(peer.complete(3, SUCCESS), 2);
            peer.write(window.handle, window.offset, b"answer")?;
            answer(&pair, b"told", &window)?;
            ensure!(pair.keeper.kept.lock().back.take().is_some());
            if silent {
                return Ok(());
            }
        }
        Err(ETIMEDOUT.into())
    }

    /// Registers a page for the peer. The peer sends a message with the guessed key before the
    /// device executes the registration. If `later` is true, the doorbell is delayed, so the
    /// message is sent even before the registration is posted. Returns the region's key and offset.
    fn guessed(pair: &Pair, later: bool) -> Test<Window> {
        let peer = pair.peer();
        // If `later` is true, the handler of the first message is slow. So the message with the
        // guessed key waits until that handler has returned.
        pair.keeper.kept.lock().slow = later;
        let mut region = pair.map(0, PAGE_SIZE, Access::RemoteWrite)?;
        let window = region.window();
        if later {
            pair.takes(b"slow")?;
        }
        match later {
            true => pair.post_later(&mut region)?,
            false => pair.post(&mut region)?,
        }
        Qp::cancel_doorbell_work(&pair.owner);
        pair.keeper.kept.lock().exposed = Some(region);
        peer.send(Message {
            data: b"guess",
            invalidates: Some(window.handle),
            ..Message::default()
        })?;
        if later {
            // This Send rings the doorbell. The handler of the first message still runs for half a
            // second. Then the handler of the message with the guessed key runs.
            pair.send(10, 1)?;
        }
        Ok(window)
    }

    /// Checks that a message with a guessed key frees no region. Also checks that a message with
    /// the right key frees no region if the message does not contain the region's offset, or if the
    /// device is not trusted.
    fn frees_nothing(later: bool, device: Kind) -> Test {
        let pair = Pair::on(device, &CONFIG)?.connect()?;
        let peer = pair.peer();
        let window = guessed(&pair, later)?;
        pair.told_of(b"guess")?;
        ensure!(pair.keeper.kept.lock().back.is_none());
        ensure_at_least!(peer.complete(3, SUCCESS), 2);
        // The key is still valid: the peer can access the region's memory.
        peer.write(window.handle, window.offset, b"answer")?;
        match device {
            Kind::Distrusted => answer(&pair, b"told", &window)?,
            _ => invalidate(&pair, b"told", window.handle)?,
        }
        let mut region = {
            let mut kept = pair.keeper.kept.lock();
            ensure!(kept.back.is_none());
            kept.exposed.take().ok_or(EINVAL)?
        };
        pair.post_invalidate(3, &mut region)?;
        pair.keeper.kept.lock().exposed = Some(region);
        let posted = peer.look(0)?;
        ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.told(Told::Invalidated(3))?;
        ensure!(pair.keeper.kept.lock().back.take().is_some());
        Ok(())
    }

    // The message with the guessed key arrives after the registration was posted, and before the
    // device executes the registration.
    #[test]
    fn an_invalidation_before_the_registration_is_no_proof() -> Test {
        frees_nothing(false, Kind::Plain)?;
        frees_nothing(false, Kind::Distrusted)
    }

    // The message with the guessed key arrives while the registration waits for the doorbell. The
    // message is handled after the registration was posted.
    #[test]
    fn an_invalidation_that_is_handled_late_is_no_proof() -> Test {
        frees_nothing(true, Kind::Plain)?;
        frees_nothing(true, Kind::Distrusted)
    }

    #[test]
    fn a_device_that_checks_keys_refuses_the_message() -> Test {
        for later in [false, true] {
            let pair = Pair::on(Kind::Checks, &CONFIG)?.connect()?;
            guessed(&pair, later)?;
            let status = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR;
            pair.told(Told::Broken(WcStatus(status)))?;
            pair.ends_exposed()?;
        }
        Ok(())
    }

    #[test]
    fn devices_are_believed_but_for_reasons() -> Test {
        for (device, believed, repeats) in [
            (Kind::Plain, true, false),
            (Kind::Stops, false, false),
            (Kind::Repeats, true, true),
            (Kind::Distrusted, false, false),
        ] {
            calm();
            device.always();
            let (id, _log) = routed()?;
            let info = DeviceInfo::of(&id).ok_or(ENODEV)?;
            ensure_eq!(info.proves_invalidations, believed);
            ensure_eq!(info.executes_again, repeats);
        }
        calm();
        Ok(())
    }

    #[test]
    fn an_invalidation_is_a_proof_once() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let region = pair.expose(Access::RemoteRead)?;
        let key = region.window().handle;
        {
            let mut kept = pair.keeper.kept.lock();
            kept.exposed = Some(region);
            kept.again = true;
            kept.unforeseen = true;
        }
        invalidate(&pair, b"told", key)?;
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        // The handler has registered the region again, with the same key.
        let window = pair
            .keeper
            .kept
            .lock()
            .exposed
            .as_ref()
            .map(ExposedMr::window);
        let window = window.ok_or(EINVAL)?;
        ensure_eq!(window.handle, key);
        peer.read(window.handle, window.offset, 10)?;
        pair.ends_exposed()
    }

    #[test]
    fn an_invalidation_is_no_proof_for_what_came_later() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut first = pair.expose(Access::RemoteWrite)?;
        let mut second = pair.expose(Access::RemoteWrite)?;
        pair.post_invalidate(1, &mut first)?;
        pair.post_invalidate(2, &mut second)?;
        pair.keeper.kept.lock().exposed = Some(second);
        // The handler tries to use the completion of the first invalidation as a proof for the
        // second region.
        peer.complete(1, SUCCESS);
        pair.told(Told::Invalidated(1))?;
        ensure!(pair.keeper.kept.lock().back.is_none());
        peer.complete(1, SUCCESS);
        pair.told(Told::Invalidated(2))?;
        ensure!(pair.keeper.kept.lock().back.is_some());
        drop(pair.owner);
        drop(first);
        Ok(())
    }
}
