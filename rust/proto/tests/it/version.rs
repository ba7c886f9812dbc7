// SPDX-License-Identifier: GPL-2.0

//! Version negotiation as a table, and for every order of events.

use xprtrdma_proto::{
    inbound::RemoteErrorKind,
    threshold::Thresholds,
    v2::negotiate::{
        receive_size,
        Negotiator,
        Outcome,
        ProbeAnswer,
        VersionPolicy,
        PROBE_MAX, //
    },
    PrivateData,
    Version, //
};

// covers: V2-31
#[test]
fn version_two_is_off_by_default() {
    assert_eq!(VersionPolicy::default(), VersionPolicy::V1Only);
    let mut negotiator = Negotiator::new(VersionPolicy::default());
    assert_eq!(negotiator.version(), None);
    assert_eq!(negotiator.begin(), Outcome::Use(Version::V1));
    assert_eq!(negotiator.version(), Some(Version::V1));
    // Nothing that arrives changes it.
    assert_eq!(negotiator.answer(ProbeAnswer::Reply), Outcome::Ignored);
    assert_eq!(negotiator.timed_out(), Outcome::Ignored);
    assert_eq!(negotiator.version(), Some(Version::V1));
}

// covers: V2-06, V2-07, V2-09, V2-30, V2-32, MAL-160, MAL-161, MAL-162, MAL-165
#[test]
fn the_answer_to_the_probe_decides() {
    use Outcome::{
        Reconnect,
        Unsupported,
        Use, //
    };
    let range = |low, high| Some(ProbeAnswer::Error(RemoteErrorKind::Version { low, high }));
    let other = |kind| Some(ProbeAnswer::Error(kind));
    let v1 = Use(Version::V1);
    let v2 = Use(Version::V2);
    // Answer (none: timer), outcome when version 2 is preferred, outcome when it is demanded.
    for (answer, prefer, demand) in [
        (Some(ProbeAnswer::Reply), v2, v2),
        (range(1, 1), v1, Unsupported),
        (range(0, 1), v1, Unsupported),
        (range(0, 0), Unsupported, Unsupported),
        (range(1, 2), v1, Unsupported),
        (range(0, u32::MAX), v1, Unsupported),
        (range(2, 2), Unsupported, Unsupported),
        (range(2, 9), Unsupported, Unsupported),
        (range(3, 9), Unsupported, Unsupported),
        (range(2, 1), Unsupported, Unsupported),
        (range(1, 0), Unsupported, Unsupported),
        (range(u32::MAX, 0), Unsupported, Unsupported),
        (other(RemoteErrorKind::Chunk), Reconnect, Unsupported),
        (other(RemoteErrorKind::InvalOption), Reconnect, Unsupported),
        (None, Reconnect, Reconnect),
    ] {
        for (policy, expected) in [
            (VersionPolicy::PreferV2, prefer),
            (VersionPolicy::V2Only, demand),
        ] {
            let mut negotiator = probing(policy);
            let outcome = match answer {
                Some(answer) => negotiator.answer(answer),
                None => negotiator.timed_out(),
            };
            assert_eq!(outcome, expected);
            let version = match expected {
                Use(version) => Some(version),
                _ => None,
            };
            assert_eq!(negotiator.version(), version);
            // The refused version is not sent again on this connection, and no second answer
            // counts.
            assert_eq!(negotiator.answer(ProbeAnswer::Reply), Outcome::Ignored);
            assert_eq!(negotiator.timed_out(), Outcome::Ignored);
            assert_eq!(negotiator.version(), version);
        }
    }
}

// covers: V2-08, V2-09, V2-12, MAL-163, MAL-164, MAL-165
#[test]
fn what_the_peer_could_not_do_is_remembered() {
    let refused = ProbeAnswer::Error(RemoteErrorKind::Version { low: 1, high: 1 });
    let strange = ProbeAnswer::Error(RemoteErrorKind::Chunk);
    // What ended the first negotiation, and whether the next connection may probe.
    let ends: [(End, ProbeAnswer, bool); 5] = [
        (answered, ProbeAnswer::Reply, true),
        (answered, refused, false),
        (answered, strange, false),
        (unanswered, refused, false),
        (lost, refused, false),
    ];
    for (end, answer, probes) in ends {
        let mut negotiator = probing(VersionPolicy::PreferV2);
        assert!(!negotiator.peer_lacks_v2());
        end(&mut negotiator, answer);
        negotiator.lost();
        // A version agreed on goes with its connection.
        assert_eq!(negotiator.version(), None);
        assert_eq!(negotiator.peer_lacks_v2(), !probes);
        for _ in 0..3 {
            let expected = match probes {
                true => Outcome::Probe,
                false => Outcome::Use(Version::V1),
            };
            assert_eq!(negotiator.begin(), expected);
            if probes {
                assert_eq!(
                    negotiator.answer(ProbeAnswer::Reply),
                    Outcome::Use(Version::V2)
                );
            }
            negotiator.lost();
        }
    }
}

// covers: V2-31
#[test]
fn version_two_only_never_falls_back() {
    let mut negotiator = probing(VersionPolicy::V2Only);
    for _ in 0..3 {
        assert_eq!(negotiator.timed_out(), Outcome::Reconnect);
        negotiator.lost();
        assert_eq!(negotiator.begin(), Outcome::Probe);
    }
    assert_eq!(
        negotiator.answer(ProbeAnswer::Error(RemoteErrorKind::Version {
            low: 1,
            high: 1
        })),
        Outcome::Unsupported
    );
    assert_eq!(negotiator.version(), None);
}

// covers: V2-01, V2-04, V2-10, X-17
#[test]
fn receives_hold_what_any_outcome_may_bring() {
    assert_eq!(PROBE_MAX, 1024);
    for (policy, own, expected) in [
        (VersionPolicy::V1Only, 1024, 1024),
        (VersionPolicy::V1Only, 65536, 65536),
        (VersionPolicy::PreferV2, 1024, 4096),
        (VersionPolicy::PreferV2, 4096, 4096),
        (VersionPolicy::PreferV2, 8192, 8192),
        (VersionPolicy::V2Only, 1024, 4096),
    ] {
        assert_eq!(receive_size(policy, own), expected);
        // What the peer may send under either version fits, also without private data.
        let own = PrivateData {
            send_size: expected,
            receive_size: expected,
            remote_invalidation: true,
        };
        for version in [Version::V1, Version::V2] {
            let agreed = Thresholds::negotiate(version, &own, None);
            assert!(agreed.reply <= receive_size(policy, expected));
        }
    }
}

/// How a negotiation ends.
type End = fn(&mut Negotiator, ProbeAnswer);

fn probing(policy: VersionPolicy) -> Negotiator {
    let mut negotiator = Negotiator::new(policy);
    assert_eq!(negotiator.begin(), Outcome::Probe);
    assert_eq!(negotiator.version(), None);
    negotiator
}

fn answered(negotiator: &mut Negotiator, answer: ProbeAnswer) {
    assert!(negotiator.answer(answer) != Outcome::Ignored);
}

fn unanswered(negotiator: &mut Negotiator, _: ProbeAnswer) {
    assert_eq!(negotiator.timed_out(), Outcome::Reconnect);
}

fn lost(negotiator: &mut Negotiator, _: ProbeAnswer) {
    negotiator.lost();
}
