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

// covers: RDS-51 RDS-55
#[test]
fn the_length_of_a_region_has_a_limit() {
    for len in [1, 4096, (1 << 20) - 1, 1 << 20] {
        assert_eq!(check_length(len), Ok(()));
    }
    for len in [(1 << 20) + 1, (1 << 20) + 4096, u64::MAX] {
        assert_eq!(check_length(len), Err(Refusal::Range));
    }
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
