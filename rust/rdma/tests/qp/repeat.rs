// SPDX-License-Identifier: GPL-2.0

//! Tests of registrations that the device executes a second time, so that an old key becomes valid
//! again. After each use of a region, this crate makes the region cover no bytes. The device checks
//! the region's address and length at each access, so the old key then gives no access.

use super::*;
use crate::tests::fake::breaches;

/// Creates a queue pair whose peer does not acknowledge the first message.
fn unacknowledged() -> Result<Pair> {
    let pair = Pair::on(Kind::Repeats, &CONFIG)?.connect()?;
    pair.send(10, 1)?;
    ensure_eq!(pair.peer().run_ahead(), 1);
    Ok(pair)
}

/// Exposes a region while the peer does not acknowledge an earlier message.
fn exposes(pair: &Pair, mut region: ExposedMr<Lent>, later: bool) -> Test<Window> {
    let window = region.window();
    let before = pair.peer().sends();
    match later {
        false => pair.post(&mut region)?,
        true => pair.post_later(&mut region)?,
    }
    // There are two work requests: the registration of the region, and the message.
    pair.rung_for(before + 2)?;
    pair.keeper.kept.lock().exposed = Some(region);
    Ok(window)
}

/// Makes the peer reply, which invalidates the region. Checks that the memory of the region is
/// returned.
fn ends(pair: &Pair, window: &Window) -> Test<(IdleMr, Lent)> {
    pair.peer().write(window.handle, window.offset, b"answer")?;
    answer(pair, b"told", window)?;
    let back = pair.keeper.kept.lock().back.take();
    Ok(back.ok_or(EINVAL)?)
}

/// Checks that the key allows neither reads nor writes at any of these addresses.
fn reaches_nothing(peer: &Peer, key: u32, offsets: &[u64]) -> Test {
    for offset in offsets {
        ensure!(peer.write(key, *offset, b"late").is_err());
        ensure!(peer.read(key, *offset, 1).is_err());
    }
    ensure_eq!(breaches(), 0);
    Ok(())
}

/// Takes a region back while its registration is still queued, and maps the region again. The
/// device executes the old registration a second time. If `before` is true, the second execution
/// happens before the region is mapped again. Otherwise the second execution happens afterwards.
fn mapped_anew(before: bool) -> Test<(Pair, Window, ExposedMr<Lent>)> {
    let pair = unacknowledged()?;
    let peer = pair.peer();
    let old = exposes(&pair, pair.map(0, PAGE_SIZE, Access::RemoteWrite)?, false)?;
    peer.run_ahead();
    let (mr, lent) = ends(&pair, &old)?;
    if before {
        ensure_eq!(peer.send_again(), 1);
        reaches_nothing(&peer, old.handle, &[old.offset, 0])?;
    }
    let region = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
    if !before {
        ensure_eq!(peer.send_again(), 1);
    }
    Ok((pair, old, region))
}

#[kunit_tests(xprtrdma_qp_repeat)]
mod suite {
    use super::*;

    // The device executes the registration a second time after the call has ended and the memory of
    // the call was returned.
    #[test]
    fn a_key_that_lives_again_reaches_nothing() -> Test {
        for later in [false, true] {
            let pair = unacknowledged()?;
            let peer = pair.peer();
            let region = pair.map(0, PAGE_SIZE, Access::RemoteWrite)?;
            let window = exposes(&pair, region, later)?;
            peer.run_ahead();
            let back = ends(&pair, &window)?;
            reaches_nothing(&peer, window.handle, &[window.offset])?;
            ensure_eq!(peer.send_again(), 1);
            reaches_nothing(&peer, window.handle, &[window.offset, 0])?;
            peer.complete(9, SUCCESS);
            ensure_eq!(Census::now().violations, 0);
            drop(pair.owner);
            drop(back);
        }
        Ok(())
    }

    // The old key may be valid again, and the region already covers the memory of the next call.
    // But the peer learns the address of that memory only from the Send of the next call. So the
    // old key gives the peer no access.
    #[test]
    fn a_key_of_before_does_not_know_the_next_address() -> Test {
        for before in [false, true] {
            let (pair, old, region) = mapped_anew(before)?;
            let window = region.window();
            ensure!(window.offset != old.offset);
            reaches_nothing(&pair.peer(), old.handle, &[old.offset, 0])?;
            reaches_nothing(&pair.peer(), window.handle, &[window.offset])?;
            let (mr, lent) = region.unposted().map_err(|_| EBUSY)?;
            reaches_nothing(&pair.peer(), old.handle, &[window.offset, old.offset])?;
            drop(pair.owner);
            drop((mr, lent));
        }
        Ok(())
    }

    // If the device may execute the old registration of a region a second time, the region must
    // keep the access rights of that registration. Otherwise the peer could use the old key to
    // access the memory of the next call with the old access rights.
    #[test]
    fn a_region_keeps_its_rights_while_it_may_be_queued() -> Test {
        for access in [Access::RemoteRead, Access::RemoteWrite] {
            let other = match access {
                Access::RemoteRead => Access::RemoteWrite,
                Access::RemoteWrite => Access::RemoteRead,
            };
            let pair = unacknowledged()?;
            let peer = pair.peer();
            let mr = IdleMr::alloc(&pair.pd, 4, false)?;
            ensure!(mr.allows(other) && mr.is_retired());
            let lent = Lent::new(&[(0, 100)])?;
            let mut region = mr.map(lent, 0, access).map_err(|e| e.error)?;
            pair.post(&mut region)?;
            pair.post_invalidate(1, &mut region)?;
            pair.keeper.kept.lock().exposed = Some(region);
            peer.complete(9, SUCCESS);
            pair.told(Told::Invalidated(1))?;
            let back = pair.keeper.kept.lock().back.take();
            let (mr, lent) = back.ok_or(EINVAL)?;
            ensure!(!mr.is_retired());
            ensure!(mr.allows(access) && !mr.allows(other));
            let mr = mr.meant_for(other);
            ensure_eq!(mr.access(), access);
            let failed = mr.map(lent, 0, other).err().ok_or(EINVAL)?;
            ensure_eq!(failed.error, EACCES);
            let (mr, lent) = (failed.mr, failed.loan);
            // `retire_registrations` posts a fence. After the fence has completed, the device will
            // not execute earlier registrations again.
            let before = peer.sends();
            pair.owner.retire_registrations().map_err(|_| EPIPE)?;
            ensure_eq!(peer.sends(), before + 1);
            ensure!(!mr.is_retired());
            peer.complete(9, SUCCESS);
            wait_until(|| mr.is_retired())?;
            ensure!(mr.allows(other));
            // The drop of the owner drains the queue. After the drain, the device will not execute
            // the registration of this region again.
            let mut region = mr.map(lent, 0, other).map_err(|e| e.error)?;
            pair.post(&mut region)?;
            peer.complete(9, SUCCESS);
            drop(pair.owner);
            let (mr, _lent) = region.drained().map_err(|_| EBUSY)?;
            ensure!(mr.is_retired());
        }
        Ok(())
    }

    #[test]
    fn nothing_is_posted_to_retire_registrations_elsewhere() -> Test {
        let pair = Pair::connected()?;
        let mut region = pair.map(0, 100, Access::RemoteWrite)?;
        pair.post(&mut region)?;
        pair.owner.retire_registrations().map_err(|_| EPIPE)?;
        ensure_eq!(pair.peer().sends(), 2);
        drop(pair.owner);
        let (mr, _lent) = region.drained().map_err(|_| EBUSY)?;
        ensure!(mr.is_retired() && mr.allows(Access::RemoteRead));
        Ok(())
    }

    // The device breaks one connection by executing a registration again. Later registrations on
    // this device have a fence.
    #[test]
    fn a_device_that_repeats_is_fenced_from_then_on() -> Test {
        let other = unacknowledged()?;
        let pair = Pair::create(&CONFIG)?.connect()?;
        pair.send(10, 1)?;
        let peer = pair.peer();
        ensure!(!pair.pd.fences() && !pair.owner.failure().repeated);
        let _window = exposes(&pair, pair.map(0, 100, Access::RemoteWrite)?, false)?;
        peer.run_ahead();
        ensure_eq!(peer.send_again(), 1);
        pair.told(Told::Broken(WcStatus::FLUSHED))?;
        ensure!(pair.owner.failure().repeated);
        ensure!(pair.pd.fences() && other.pd.fences());
        pair.ends_exposed()?;
        // A queue pair that was created before the connection broke uses fences only after its next
        // completion.
        let peer = other.peer();
        for _ in 0..CONFIG.signal_every {
            other.send(10, 1)?;
        }
        ensure_at_least!(peer.complete(9, SUCCESS), CONFIG.signal_every);
        other.told(Told::Acknowledged)?;
        let new = Pair::create(&CONFIG)?.connect()?;
        for pair in [other, new] {
            let before = pair.peer().sends();
            let mut region = pair.map(0, 100, Access::RemoteWrite)?;
            pair.post(&mut region)?;
            ensure_eq!(pair.peer().sends(), before + 3);
            let first = pair.peer().look(before)?;
            ensure_eq!(first.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
            drop(pair.owner);
            drop(region);
        }
        calm();
        Ok(())
    }

    // The device refuses a registration if an earlier key of the region has become valid again. The
    // connection then ends.
    #[test]
    fn a_key_that_lives_again_costs_the_connection() -> Test {
        let (pair, _old, region) = mapped_anew(true)?;
        ensure!(!pair.owner.failure().repeated);
        let _window = exposes(&pair, region, false)?;
        pair.peer().run_ahead();
        pair.told(Told::Broken(WcStatus::FLUSHED))?;
        ensure!(pair.owner.failure().repeated);
        pair.ends_exposed()?;
        calm();
        Ok(())
    }

    // A connection that ends for another reason is not reported as broken by a repeated
    // registration.
    #[test]
    fn other_ends_are_no_repetitions() -> Test {
        const ERROR: u32 = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR;
        // In each case one fact shows that no repeated registration broke the connection. These are
        // the facts, in the order of the cases:
        // - The error status is not `FLUSHED`.
        // - Nothing was registered.
        // - This host ends the connection.
        // - The registration has a fence.
        // - The device is of the type `Plain`.
        // - A packet cannot be sent.
        // - No work request is sent again.
        for (kind, registers, status, closed, again, sent) in [
            (Kind::Repeats, true, ERROR, false, true, true),
            (Kind::Repeats, false, FLUSHED, false, true, true),
            (Kind::Repeats, true, FLUSHED, true, true, true),
            (Kind::Fenced, true, FLUSHED, false, true, true),
            (Kind::Plain, true, FLUSHED, false, true, true),
            (Kind::Repeats, true, FLUSHED, false, true, false),
            (Kind::Repeats, true, FLUSHED, false, false, true),
        ] {
            let mut pair = Pair::on(kind, &CONFIG)?.connect()?;
            let mut region = pair.map(0, 100, Access::RemoteWrite)?;
            pair.send(10, 1)?;
            if registers {
                pair.post(&mut region)?;
            }
            if again {
                ensure_eq!(pair.peer().send_again(), 0);
            }
            if !sent {
                pair.peer().is_not_sent_to();
            }
            if closed {
                pair.owner.shut_down();
            } else {
                ensure_eq!(pair.peer().complete(1, status), 1);
                pair.told(Told::Broken(WcStatus(status)))?;
            }
            ensure!(!pair.owner.failure().repeated);
            ensure_eq!(pair.pd.fences(), kind == Kind::Fenced);
            drop(pair.owner);
            drop(region);
        }
        calm();
        Ok(())
    }
}
