// SPDX-License-Identifier: GPL-2.0

//! Tests of the documented rules for regions.

use xprtrdma_rds_proto::region::*;

const STRICT: Wanted = Wanted {
    use_once: true,
    invalidate: true,
};

// covers: RDS-02 RDS-20
#[test]
fn a_handle_is_key_and_offset() {
    let cookie = Cookie(0x0000_0abc_1234_5678);
    assert_eq!((cookie.key(), cookie.offset()), (0x1234_5678, 0xabc));
}

#[test]
fn a_region_is_what_was_named() {
    for (start, len, pages) in [
        (0, 1, 1),
        (0, 4096, 1),
        (4095, 1, 1),
        (4095, 2, 2),
        (0x7f00_0000_0ffe, 4097, 2),
        (0x7f00_0000_0fff, 1 << 20, 257),
    ] {
        let extent = Extent::new(start, len, pages);
        let offset = (start % 4096) as u32;
        let wanted = Extent {
            offset,
            len: len as u32,
            pages: pages as u32,
        };
        assert_eq!(extent, Ok(wanted));
        // The number of pages must be exactly the number of pages that the range touches.
        for other in [pages - 1, pages + 1] {
            assert_eq!(Extent::new(start, len, other), Err(Refusal::Range));
        }
    }
}

// covers: RDS-51 RDS-55
#[test]
fn a_range_has_bounds() {
    assert_eq!(Extent::new(0, 0, 0), Err(Refusal::Range));
    assert!(Extent::new(0, 1 << 20, 256).is_ok());
    for start in [0, 1] {
        let longer = Extent::new(start, (1 << 20) + 1, 257);
        assert_eq!(longer, Err(Refusal::Range));
    }
    assert_eq!(Extent::new(u64::MAX - 1, 3, 2), Err(Refusal::Range));
}

// covers: RDS-24 RDS-27
#[test]
fn a_region_that_is_used_once_is_revoked_before_its_ack_is_read() {
    let mut life = Life::new(STRICT);
    assert_eq!(life.acknowledged(), Due::Revoke);
    life.revoked();
    assert_eq!(life.acknowledged(), Due::Nothing);
    assert_eq!(life.released(), Due::Nothing);
    for wanted in [
        Wanted {
            use_once: false,
            ..STRICT
        },
        Wanted {
            invalidate: false,
            ..STRICT
        },
        Wanted::default(),
    ] {
        assert_eq!(Life::new(wanted).acknowledged(), Due::Nothing);
    }
}

// covers: RDS-17 RDS-25 RDS-47
#[test]
fn a_release_revokes_once() {
    for wanted in [Wanted::default(), STRICT] {
        let mut life = Life::new(wanted);
        assert_eq!((life.released(), life.lost()), (Due::Revoke, Due::Revoke));
        life.revoked();
        assert_eq!((life.released(), life.lost()), (Due::Nothing, Due::Nothing));
    }
}

// covers: RDS-49 RDS-56
#[test]
fn regions_have_a_limit() {
    let mut limit = Limit::new(3);
    for _ in 0..3 {
        assert_eq!(limit.map(), Ok(()));
    }
    assert_eq!(limit.map(), Err(Refusal::Limit));
    limit.unmap();
    assert_eq!(limit.map(), Ok(()));
    assert_eq!(limit.map(), Err(Refusal::Limit));
    assert_eq!(Limit::new(0).map(), Err(Refusal::Limit));
}
