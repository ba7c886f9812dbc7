// SPDX-License-Identifier: GPL-2.0

//! The log messages about a server that cannot be reached.

use xprtrdma_proto::{
    conn::{
        Config,
        ConnectError,
        Outage,
        Report, //
    },
    time::{
        Millis,
        Time, //
    },
};

const SECOND: Millis = Millis::from_secs(1);

// Observability: an administrator learns of an outage immediately, and the log is not flooded.
#[test]
fn a_day_without_a_server_costs_few_lines() {
    let mut outage = Outage::new();
    let mut told = Vec::new();
    for second in (10..24 * 3600).step_by(30) {
        let now = Time::from_millis(second * 1000);
        let report = outage.failed(ConnectError::AddrSilent, SECOND, true, now, || true);
        assert_eq!(report.since, Millis::from_secs(second - 9));
        assert_eq!(u64::from(report.attempts), (second - 10) / 30 + 1);
        if report.tell {
            told.push(second - 10);
        }
    }
    let first = [0, 60, 180, 420, 900, 1860, 3780, 7380];
    assert_eq!(told.get(..first.len()), Some(&first[..]));
    assert!(told.len() <= 30);
    // During a long outage a message is logged at least once an hour.
    assert!(told.windows(2).all(|pair| pair[1] - pair[0] <= 3630));
}

// Observability: a new reason for an outage is logged immediately.
#[test]
fn another_reason_is_told_once_in_each_pause() {
    let mut outage = Outage::new();
    let mut tell = |reason, second: u64| {
        let now = Time::from_millis(second * 1000);
        outage.failed(reason, SECOND, true, now, || true).tell
    };
    assert!(tell(ConnectError::Unanswered, 100));
    assert!(tell(ConnectError::Refused, 110));
    for second in 111..159 {
        assert!(!tell(ConnectError::Refused, second));
        assert!(!tell(ConnectError::Unanswered, second));
    }
    assert!(tell(ConnectError::Refused, 160));
    assert!(tell(ConnectError::Unanswered, 161));
    assert!(!tell(ConnectError::Refused, 279));
    assert!(tell(ConnectError::Refused, 280));
}

// Observability: the end of an outage is logged with the duration and the number of failures. The
// next outage is logged as if it were the first.
#[test]
fn a_connection_ends_the_outage() {
    let mut outage = Outage::new();
    assert_eq!(outage.ended(Time::from_millis(500_000)).0, 0);
    for _ in 0..2 {
        for second in 1000..1007 {
            let now = Time::from_millis(second * 1000);
            let report = outage.failed(
                ConnectError::Refused,
                Millis::from_secs(4),
                false,
                now,
                || true,
            );
            assert_eq!(report.tell, second == 1000);
        }
        let ended = outage.ended(Time::from_millis(1_010_000));
        assert_eq!(ended, (7, Millis::from_secs(14)));
    }
    assert_eq!(outage.ended(Time::from_millis(1_020_000)).0, 0);
}

// Observability: if a device claims to work, but its requests are not answered for long, the log
// names the device once.
#[test]
fn a_device_that_is_never_answered_is_suspected() {
    // The time limits of an attempt: for a first mount, with a single rail, and the two shorter
    // limits with several rails.
    let (first, usual) = (Millis::from_secs(15), Config::default().connect_timeout);
    let (hasty, of_rails) = (Millis::from_secs(4), Millis::from_secs(10));
    let suspects = |attempts: &[(ConnectError, Millis, bool)]| {
        let mut outage = Outage::new();
        let mut now = Time::from_millis(1_000_000);
        let mut found = Vec::new();
        for (number, &(reason, lasted, active)) in attempts.iter().enumerate() {
            now = now.after(Millis::from_secs(90));
            let report: Report = outage.failed(reason, lasted, active, now, || true);
            if report.suspect_device {
                found.push(number);
            }
        }
        found
    };
    use ConnectError::{
        AddrSilent,
        Refused,
        Unanswered, //
    };
    let silent = (Unanswered, usual, true);
    let brief = (Unanswered, hasty, true);
    assert!(suspects(&[silent]).is_empty());
    assert_eq!(suspects(&[silent, silent, silent, silent]), [1]);
    assert_eq!(suspects(&[(Unanswered, first, true), silent]), [1]);
    assert!(suspects(&[silent, (Refused, usual, true), silent]).is_empty());
    assert_eq!(
        suspects(&[silent, (Unanswered, usual, false), silent, silent]),
        [3]
    );
    assert!(suspects(&[(AddrSilent, usual, true); 9]).is_empty());
    assert!(suspects(&[(Unanswered, usual, false); 9]).is_empty());
    assert!(suspects(&[brief; 9]).is_empty());
    assert!(suspects(&[(Unanswered, of_rails, true); 9]).is_empty());
    assert!(suspects(&[silent, brief, silent]).is_empty());
    // The log names the device once in each outage.
    let mut outage = Outage::new();
    let now = Time::from_millis(1_000_000);
    for _ in 0..2 {
        let mut fail = || {
            outage
                .failed(Unanswered, usual, true, now, || true)
                .suspect_device
        };
        assert!(!fail());
        assert!(fail());
        outage.ended(now);
    }
}

// Observability: a message that had to be suppressed is logged later.
#[test]
fn news_keep_until_they_may_be_told() {
    let mut outage = Outage::new();
    let mut fail = |reason, second: u64, may_tell: Option<bool>| {
        let mut asked = false;
        let now = Time::from_millis(second * 1000);
        let report = outage.failed(reason, SECOND, true, now, || {
            asked = true;
            may_tell == Some(true)
        });
        // The log has a rate limit, so a message is requested only if there is something to report.
        assert_eq!(asked, may_tell.is_some());
        report.tell
    };
    assert!(!fail(ConnectError::Refused, 100, Some(false)));
    assert!(!fail(ConnectError::Refused, 101, Some(false)));
    assert!(fail(ConnectError::Refused, 102, Some(true)));
    assert!(!fail(ConnectError::Refused, 103, None));
    assert!(!fail(ConnectError::NoRoute, 104, Some(false)));
    assert!(fail(ConnectError::NoRoute, 105, Some(true)));
    assert!(!fail(ConnectError::NoRoute, 161, None));
    assert!(!fail(ConnectError::NoRoute, 162, Some(false)));
    assert!(fail(ConnectError::Refused, 170, Some(true)));
    assert!(!fail(ConnectError::Refused, 289, None));
    assert!(fail(ConnectError::Refused, 290, Some(true)));
}
