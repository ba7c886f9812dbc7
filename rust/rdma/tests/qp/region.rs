// SPDX-License-Identifier: GPL-2.0

//! Tests of memory regions: what a peer can access, and on which queue pairs a region may be
//! posted.

use super::*;

#[kunit_tests(xprtrdma_qp_region)]
mod suite {
    use super::*;

    #[test]
    fn the_peer_reads_what_it_may_read() -> Test {
        let pair = Pair::connected()?;
        let region = pair.expose(Access::RemoteRead)?;
        let window = region.window();
        let peer = pair.peer();
        let seen = peer.read(window.handle, window.offset, 2 * PAGE_SIZE)?;
        for (i, byte) in seen.iter().enumerate() {
            ensure_eq!(usize::from(*byte), (100 + i) % 251);
        }
        // The peer cannot write to the region, read beyond its end, or access it with the earlier
        // key.
        ensure!(peer.write(window.handle, window.offset, b"no").is_err());
        ensure!(peer
            .read(window.handle, window.offset + 1, 2 * PAGE_SIZE)
            .is_err());
        ensure!(peer
            .read(window.handle.wrapping_sub(1), window.offset, 1)
            .is_err());
        drop(pair.owner);
        drop(region);
        Ok(())
    }

    // The memory is larger than one bounce buffer.
    #[test]
    fn much_memory_is_one_range_to_the_peer() -> Test {
        const MANY: usize = 100;
        for gaps in [false, true] {
            let pair = Pair::connected()?;
            let (first, len) = (100, (MANY - 1) * PAGE_SIZE);
            let lent = Lent::of(MANY, &[(first, len)])?;
            // CAST: The number of pages is 100.
            let mut region = IdleMr::alloc(&pair.pd, MANY as u32, gaps)?
                .map(lent, 0, Access::RemoteRead)
                .map_err(|e| e.error)?;
            pair.post(&mut region)?;
            let peer = pair.peer();
            peer.complete(2, SUCCESS);
            let window = region.window();
            ensure_eq!(window.length as usize, len);
            for at in (0..len - 1000).step_by(PAGE_SIZE - 500) {
                let seen = peer.read(window.handle, window.offset + at as u64, 1000)?;
                for (i, byte) in seen.iter().enumerate() {
                    ensure_eq!(usize::from(*byte), (first + at + i) % 251);
                }
            }
            drop(pair.owner);
            drop(region);
        }
        Ok(())
    }

    #[test]
    fn a_region_with_gaps_is_one_range_to_the_peer() -> Test {
        let pair = Pair::connected()?;
        let pieces = [(17, 100), (3 * PAGE_SIZE + 5, 200), (PAGE_SIZE, 50)];
        let mut region = IdleMr::alloc(&pair.pd, 4, true)?
            .map(Lent::new(&pieces)?, 0, Access::RemoteRead)
            .map_err(|e| e.error)?;
        pair.post(&mut region)?;
        let peer = pair.peer();
        peer.complete(2, SUCCESS);
        let window = region.window();
        let seen = peer.read(window.handle, window.offset, 350)?;
        let expected = pieces.iter().flat_map(|(first, len)| *first..*first + *len);
        for (byte, at) in seen.iter().zip(expected) {
            ensure_eq!(usize::from(*byte), at % 251);
        }
        drop(pair.owner);
        drop(region);
        Ok(())
    }

    #[test]
    fn many_regions_go_with_one_call() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut regions = KVec::new();
        for _ in 0..8 {
            let mr = IdleMr::alloc(&pair.pd, 2, false)?;
            let region = mr
                .map(Lent::new(&[(0, 100)])?, 0, Access::RemoteWrite)
                .map_err(|e| e.error)?;
            regions.push(region, GFP_KERNEL)?;
        }
        Verb::PostSend.fail(0);
        let batch = pair.owner.begin(64, 9).map_err(|_| EAGAIN)?;
        batch.post(64, &mut regions)?;
        // One call posts all work requests. The registrations precede the Send of the message that
        // describes the registered regions.
        ensure_eq!(Verb::PostSend.calls(), 1);
        ensure_eq!(peer.sends(), 9);
        ensure_eq!(peer.look(8)?.opcode, bindings::ib_wr_opcode_IB_WR_SEND);
        for (i, region) in regions.iter().enumerate() {
            let posted = peer.look(i as u32)?;
            ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_REG_MR);
            ensure_eq!(posted.key, region.window().handle);
        }
        peer.complete(9, SUCCESS);
        wait_for_room(&pair)?;
        let batch = pair.owner.begin(0, 8).map_err(|_| EAGAIN)?;
        batch.post_invalidate(5, &mut regions)?;
        // Only the last invalidation is signalled.
        for i in 0..8 {
            ensure_eq!(peer.look(i)?.signalled != 0, i == 7);
        }
        peer.complete(8, SUCCESS);
        pair.told(Told::Invalidated(5))?;
        drop(pair.owner);
        drop(regions);
        Ok(())
    }

    #[test]
    fn more_regions_than_there_is_room_for_are_refused() -> Test {
        let pair = Pair::connected()?;
        let mut regions = KVec::new();
        for _ in 0..2 {
            let mr = IdleMr::alloc(&pair.pd, 1, false)?;
            let region = mr
                .map(Lent::new(&[(0, 10)])?, 0, Access::RemoteRead)
                .map_err(|e| e.error)?;
            regions.push(region, GFP_KERNEL)?;
        }
        let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post(64, &mut regions), Err(E2BIG));
        ensure_eq!(pair.peer().sends(), 0);
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_invalidate(1, &mut regions), Err(E2BIG));
        ensure_eq!(pair.peer().sends(), 0);
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_invalidate::<Lent>(1, &mut []), Err(EINVAL));
        ensure_eq!(pair.peer().sends(), 0);
        drop(pair.owner);
        drop(regions);
        Ok(())
    }

    /// Tries to post a message that registers the region, first with `post` and then with
    /// `post_later`. Then tries to post an invalidation of the region. Returns the three results.
    fn refused(pair: &Pair, region: &mut ExposedMr<Lent>) -> Result<[Result; 3]> {
        let regions = core::slice::from_mut(region);
        let begin = || pair.owner.begin(64, 2).map_err(|_| EAGAIN);
        Ok([
            begin()?.post(64, regions),
            begin()?.post_later(64, regions),
            begin()?.post_invalidate(1, regions),
        ])
    }

    const REFUSED: [Result; 3] = [Err(EINVAL); 3];

    #[test]
    fn a_region_is_for_the_queue_pair_of_its_domain() -> Test {
        let pair = Pair::connected()?;
        let other = Pair::connected()?;
        // The protection domain `second` belongs to the same CM id as the domain of `pair`, but has
        // no queue pair.
        let second = Pd::alloc(pair.id.clone())?;
        for pd in [&other.pd, &second] {
            let mut region = IdleMr::alloc(pd, 4, false)?
                .map(Lent::new(&[(0, 100)])?, 0, Access::RemoteWrite)
                .map_err(|e| e.error)?;
            ensure_eq!(refused(&pair, &mut region)?, REFUSED);
            // Neither the region nor the message was posted.
            ensure_eq!(pair.owner.send_occupancy(), (0, 0));
            ensure_eq!(pair.peer().sends(), 0);
            let (mr, lent) = region.unposted().map_err(|_| EBUSY)?;
            drop((mr, lent));
        }
        // A queue pair also refuses to invalidate a region that was posted on another queue pair.
        let mut region = other.expose(Access::RemoteWrite)?;
        ensure_eq!(refused(&pair, &mut region)?, REFUSED);
        ensure_eq!(pair.peer().sends(), 0);
        drop(other.owner);
        drop(region);
        pair.send(10, 1)?;
        Ok(())
    }

    #[test]
    fn a_mapping_is_posted_once_and_invalidated_once() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let lent = Lent::new(&[(100, PAGE_SIZE)])?;
        let (mut mr, mut lent) = (IdleMr::alloc(&pair.pd, 4, false)?, lent);
        for later in [false, true] {
            let mut region = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
            let regions = core::slice::from_mut(&mut region);
            // An invalidation can be posted only after the registration.
            let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
            ensure_eq!(batch.post_invalidate(1, regions), Err(EINVAL));
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            match later {
                false => batch.post(64, regions)?,
                true => batch.post_later(64, regions)?,
            }
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            ensure_eq!(batch.post(64, regions), Err(EINVAL));
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            ensure_eq!(batch.post_later(64, regions), Err(EINVAL));
            pair.rung_for(2)?;
            let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
            batch.post_invalidate(2, regions)?;
            ensure_eq!(refused(&pair, &mut region)?, REFUSED);
            // The work requests: the registration, the message, the invalidation.
            ensure_eq!(peer.sends(), 3);
            let window = region.window();
            pair.keeper.kept.lock().exposed = Some(region);
            ensure_eq!(peer.complete(3, SUCCESS), 3);
            pair.keeper
                .log
                .wait_times(Told::Invalidated(2), 1 + usize::from(later))?;
            ensure!(peer.write(window.handle, window.offset, b"late").is_err());
            let back = pair.keeper.kept.lock().back.take();
            (mr, lent) = back.ok_or(EINVAL)?;
        }
        drop((mr, lent));
        ensure_eq!(Census::now().violations, 0);
        Ok(())
    }
}
