// SPDX-License-Identifier: GPL-2.0

//! The vocabulary of rds-rdma(7): layouts, cookies, flags, limits, statuses.

use core::mem::{
    offset_of,
    size_of, //
};

use proptest::{
    prelude::*,
    test_runner::RngAlgorithm::ChaCha,
    test_runner::TestRng,
    test_runner::TestRunner, //
};
use xprtrdma_proto::{
    chunk::{
        Handle,
        Segment, //
    },
    rds::{
        check_sizes,
        Access,
        Cookie,
        Free,
        FreeMrArgs,
        GetMrArgs,
        Iovec,
        Limits,
        MapFlags,
        MrError,
        OpStatus,
        RdmaArgs,
        RdmaArgs32,
        RdmaNotify,
        RdmaNotify32,
        Unmapped,
        BUSY_RETRIES, //
    },
    wc::WcStatus,
    Error, //
};

#[test]
fn structures_have_the_layout_of_the_interface() {
    assert_eq!(size_of::<Cookie>(), 8);
    assert_eq!(size_of::<Iovec>(), 16);
    assert_eq!((offset_of!(Iovec, addr), offset_of!(Iovec, bytes)), (0, 8));
    assert_eq!(size_of::<GetMrArgs>(), 32);
    assert_eq!(offset_of!(GetMrArgs, vec), 0);
    assert_eq!(offset_of!(GetMrArgs, cookie_addr), 16);
    assert_eq!(offset_of!(GetMrArgs, flags), 24);
    assert_eq!(size_of::<FreeMrArgs>(), 16);
    assert_eq!(offset_of!(FreeMrArgs, cookie), 0);
    assert_eq!(offset_of!(FreeMrArgs, flags), 8);
    assert_eq!(size_of::<RdmaArgs>(), 56);
    assert_eq!(offset_of!(RdmaArgs, cookie), 0);
    assert_eq!(offset_of!(RdmaArgs, remote_vec), 8);
    assert_eq!(offset_of!(RdmaArgs, local_vec_addr), 24);
    assert_eq!(offset_of!(RdmaArgs, nr_local), 32);
    assert_eq!(offset_of!(RdmaArgs, flags), 40);
    assert_eq!(offset_of!(RdmaArgs, user_token), 48);
    assert_eq!(size_of::<RdmaArgs32>(), 56);
    assert_eq!(offset_of!(RdmaArgs32, user_token), 48);
    assert_eq!(size_of::<RdmaNotify>(), 16);
    assert_eq!(offset_of!(RdmaNotify, status), 8);
    assert_eq!(size_of::<RdmaNotify32>(), 8);
    assert_eq!(offset_of!(RdmaNotify32, status), 4);
}

#[test]
fn cookie_holds_key_and_offset() {
    for (key, offset, raw) in [
        (0, 0, 0),
        (1, 0, 1),
        (0, 1, 1 << 32),
        (0x0102_0304, 0xa0b0_c0d0, 0xa0b0_c0d0_0102_0304),
        (u32::MAX, u32::MAX, u64::MAX),
    ] {
        let cookie = Cookie::new(Handle(key), offset);
        assert_eq!(cookie.raw(), raw);
        assert_eq!(Cookie::from_raw(raw), cookie);
        assert_eq!(cookie.handle(), Handle(key));
        assert_eq!(cookie.offset(), offset);
    }
}

#[test]
fn cookie_makes_segments_within_its_span_only() {
    let cookie = Cookie::new(Handle(7), 0x1001);
    assert_eq!(
        cookie.segment(0x10, 5),
        Ok(Segment {
            handle: Handle(7),
            length: 5,
            offset: 0x1011,
        })
    );
    const SPAN: u64 = 1 << 32;
    for (offset, relative, bytes, fits) in [
        (0, 0, 0, false),
        (0, 0, 1, true),
        (0, 0, u64::from(u32::MAX), true),
        (0, 0, SPAN, false),
        (u32::MAX, 0, 1, true),
        (u32::MAX, 0, 2, false),
        (u32::MAX, 1, 1, false),
        (1, SPAN - 2, 1, true),
        (1, SPAN - 1, 1, false),
        (1, u64::MAX, 1, false),
        (0, u64::MAX, 1, false),
        (0, 1, u64::MAX, false),
        (0, u64::MAX, u64::MAX, false),
    ] {
        let segment = Cookie::new(Handle(1), offset).segment(relative, bytes);
        assert_eq!(segment.is_ok(), fits);
        if !fits {
            assert_eq!(segment, Err(MrError::Inval));
        }
    }
}

#[test]
fn any_cookie_survives_and_any_segment_stays_inside() {
    let ranges = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
    let outcome = runner(2000).run(&ranges, |(key, offset, relative, bytes)| {
        let cookie = Cookie::new(Handle(key), offset);
        prop_assert_eq!(Cookie::from_raw(cookie.raw()), cookie);
        for (relative, bytes) in [(relative, bytes), (relative >> 32, bytes >> 33)] {
            if let Ok(segment) = cookie.segment(relative, bytes) {
                let end = u128::from(segment.offset) + u128::from(segment.length);
                prop_assert!(end <= 1 << 32);
                prop_assert_eq!(
                    u128::from(segment.offset),
                    u128::from(offset) + u128::from(relative)
                );
                prop_assert_eq!(u64::from(segment.length), bytes);
            }
        }
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn mappings_are_strict_and_of_known_flags() {
    // Every combination of the low byte, with READWRITE 1, FENCE 2, INVALIDATE 4, USE_ONCE 8.
    for bits in 0..=0xffu64 {
        let expected = match bits {
            0x0c => Ok(Access::PeerReads),
            0x0d => Ok(Access::PeerWrites),
            _ => Err(MrError::Inval),
        };
        assert_eq!(MapFlags::from_bits(bits).map(MapFlags::access), expected);
    }
    for shift in 8..64 {
        assert_eq!(
            MapFlags::from_bits(0x0c | (1 << shift)),
            Err(MrError::Inval)
        );
    }
    for access in [Access::PeerReads, Access::PeerWrites] {
        let flags = MapFlags::new(access);
        assert_eq!(flags.access(), access);
        assert_eq!(MapFlags::from_bits(flags.bits()), Ok(flags));
    }
    assert_eq!(MapFlags::FENCE, 2);
    assert_eq!(MapFlags::NOTIFY_ME, 0x20);
}

#[test]
fn releases_are_immediate() {
    let free = |cookie, flags| Free::new(FreeMrArgs { cookie, flags });
    assert_eq!(free(0, MapFlags::INVALIDATE), Ok(Free::All));
    assert_eq!(
        free(5, MapFlags::INVALIDATE),
        Ok(Free::One(Cookie::new(Handle(5), 0)))
    );
    for (cookie, flags) in [
        (0, 0),
        (5, 0),
        (5, MapFlags::USE_ONCE),
        (5, MapFlags::INVALIDATE | MapFlags::USE_ONCE),
        (0, MapFlags::INVALIDATE | (1 << 63)),
    ] {
        assert_eq!(free(cookie, flags), Err(MrError::Inval));
    }
}

#[test]
fn window_and_local_memory_must_be_equally_long() {
    let part = |bytes| Iovec { addr: 0, bytes };
    let local = [part(1000), part(0), part(24)];
    assert_eq!(check_sizes(part(1024), &local), Ok(()));
    assert_eq!(check_sizes(part(1025), &local), Err(MrError::Inval));
    assert_eq!(check_sizes(part(1023), &local), Err(MrError::Inval));
    assert_eq!(check_sizes(part(0), &[]), Ok(()));
    assert_eq!(check_sizes(part(1), &[]), Err(MrError::Inval));
    // A sum that wraps to the window's length is not equal to it.
    let wrapping = [part(u64::MAX), part(3)];
    assert_eq!(check_sizes(part(2), &wrapping), Err(MrError::Inval));
}

#[test]
fn a_range_is_whole_and_at_most_the_limit() {
    let limits = Limits::default();
    const MIB: u64 = 1 << 20;
    for (addr, bytes, fits) in [
        (0x1001, 1, true),
        (0x1001, 0, false),
        (0x1001, MIB - 1, true),
        (0x1001, MIB, true),
        (0x1001, MIB + 1, false),
        (0, u64::MAX, false),
        (u64::MAX - MIB, MIB, true),
        (u64::MAX - MIB + 1, MIB, false),
        (u64::MAX, 1, false),
    ] {
        let expected = if fits { Ok(()) } else { Err(MrError::Inval) };
        assert_eq!(limits.check(Iovec { addr, bytes }), expected);
    }
}

#[test]
fn the_lower_of_our_and_the_device_limits_rules() {
    let ours = Limits::default();
    assert_eq!((ours.region_bytes, ours.regions), (1 << 20, 2048));
    for (regions, pages, page, expected) in [
        (u32::MAX, 1024, 4096, (1 << 20, 2048)),
        (100, 257, 4096, (1 << 20, 100)),
        (100, 256, 4096, (255 * 4096, 100)),
        (2049, 30, 4096, (29 * 4096, 2048)),
        (100, 65, 16_384, (1 << 20, 100)),
        (100, 64, 16_384, (63 * 16_384, 100)),
        (100, 17, 65_536, (1 << 20, 100)),
        (100, 16, 65_536, (15 * 65_536, 100)),
        (1, 1, 65_536, (0, 1)),
        (1, 1, 4096, (0, 1)),
        (0, 0, 4096, (0, 0)),
    ] {
        let limits = ours.within_device(regions, pages, page);
        assert_eq!((limits.region_bytes, limits.regions), expected);
    }
    let one = Limits { regions: 1, ..ours };
    assert_eq!(one.check_count(0), Ok(()));
    assert_eq!(one.check_count(1), Err(MrError::Again));
    assert_eq!(one.check_count(2), Err(MrError::Again));
}

#[test]
fn completions_have_a_status() {
    let numbers = [
        (OpStatus::Success, 0),
        (OpStatus::RemoteError, 1),
        (OpStatus::Canceled, 2),
        (OpStatus::Dropped, 3),
        (OpStatus::OtherError, 4),
    ];
    for (status, number) in numbers {
        assert_eq!(status.raw(), number);
    }
    // The status for each number in `ib_wc.status`.
    for raw in 0..64 {
        let expected = match raw {
            0 => OpStatus::Success,
            5 => OpStatus::Dropped,
            9 | 10 => OpStatus::RemoteError,
            _ => OpStatus::OtherError,
        };
        assert_eq!(OpStatus::from_wc(WcStatus::from_raw(raw)), expected);
    }
    for (raw, class) in [
        (1, WcStatus::LocalLength),
        (2, WcStatus::LocalProtection),
        (4, WcStatus::LocalProtection),
        (8, WcStatus::LocalProtection),
        (9, WcStatus::RemoteInvalidRequest),
        (10, WcStatus::RemoteAccess),
        (11, WcStatus::RemoteOperation),
        (12, WcStatus::RetryExceeded),
        (13, WcStatus::RnrExceeded),
        (14, WcStatus::Other),
        (u32::MAX, WcStatus::Other),
    ] {
        assert_eq!(WcStatus::from_raw(raw), class);
    }
}

#[test]
fn errors_reach_the_rpc_client_only_in_its_own_words() {
    assert_eq!(MrError::Again.to_errno(), -11);
    assert_eq!(MrError::Busy.to_errno(), -16);
    assert_eq!(MrError::Inval.to_errno(), -22);
    assert_eq!(BUSY_RETRIES, 8);
    for (error, busy, outcome, errno) in [
        (MrError::Again, 0, Error::Again, -11),
        (MrError::Again, u8::MAX, Error::Again, -11),
        (MrError::Busy, 0, Error::NoBuffers, -105),
        (MrError::Busy, 7, Error::NoBuffers, -105),
        (MrError::Busy, 8, Error::Unmappable, -5),
        (MrError::Inval, 0, Error::Unbuildable, -5),
    ] {
        assert_eq!(error.error(busy), outcome);
        assert_eq!(error.error(busy).to_errno(), errno);
    }
}

#[test]
fn memory_that_is_never_mapped_ends_its_call() {
    let mut unmapped = Unmapped::default();
    for (xid, connection) in [(0, 0), (7, 1), (8, 1), (7, 1), (7, 2)] {
        // The count starts again with another call, or another connection.
        for _ in 0..BUSY_RETRIES {
            assert_eq!(unmapped.again(xid, connection), Error::NoBuffers);
        }
        for _ in 0..300 {
            assert_eq!(unmapped.again(xid, connection), Error::Unmappable);
        }
    }
}

fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(ChaCha, &[0x5d; 32]))
}
