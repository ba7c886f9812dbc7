// SPDX-License-Identifier: GPL-2.0

//! Tests of version negotiation: a table of answers, and events in every order.

use xprtrdma_proto::{
    inbound::RemoteErrorKind,
    threshold::Thresholds,
    time::Time,
    v2::negotiate::{
        announced_size,
        receive_size,
        EndedBy,
        Known,
        Negotiator,
        Outcome,
        ProbeAnswer,
        VersionPolicy,
        DOUBT, //
    },
    PrivateData,
    Version, //
};

const NOW: Time = Time::from_millis(1_000_000);

// covers: V2-31
#[test]
fn version_two_is_off_by_default() {
    assert_eq!(VersionPolicy::default(), VersionPolicy::V1Only);
    let mut negotiator = Negotiator::new(VersionPolicy::default());
    assert_eq!(negotiator.begin(NOW), Outcome::Use(Version::V1));
    // No message that arrives later changes the version.
    assert_eq!(negotiator.answer(ProbeAnswer::Reply, NOW), Outcome::Ignored);
    assert_eq!(negotiator.timed_out(NOW), Outcome::Ignored);
}

// covers: V2-06, V2-07, V2-30, MAL-160, MAL-161, MAL-162
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
    // Columns: the answer (`None`: the timer fires without an answer), the outcome if version 2 is
    // preferred, and the outcome if version 2 is required.
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
                Some(answer) => negotiator.answer(answer, NOW),
                None => negotiator.timed_out(NOW),
            };
            assert_eq!(outcome, expected);
            // The refused version is not sent again on this connection, and a second answer has no
            // effect.
            assert_eq!(negotiator.answer(ProbeAnswer::Reply, NOW), Outcome::Ignored);
            assert_eq!(negotiator.timed_out(NOW), Outcome::Ignored);
        }
    }
}

// covers: V2-08, V2-09, V2-12, MAL-164, MAL-165
#[test]
fn what_the_peer_could_not_do_is_remembered() {
    let range = |low, high| ProbeAnswer::Error(RemoteErrorKind::Version { low, high });
    let strange = ProbeAnswer::Error(RemoteErrorKind::Chunk);
    let refused = range(1, 1);
    // Columns: how the first negotiation ended, the answer to the probe, whether the next
    // connection may send a probe, and whether a connection long afterwards may send a probe.
    let ends: [(End, ProbeAnswer, bool, bool); 8] = [
        (answered, ProbeAnswer::Reply, true, true),
        (answered, refused, false, false),
        (answered, range(3, 9), true, true),
        (answered, range(1, 2), false, true),
        (answered, strange, false, true),
        (unanswered, refused, false, true),
        (lost, refused, false, true),
        (lost_by_us, refused, true, true),
    ];
    for (end, answer, probes, later) in ends {
        let mut negotiator = probing(VersionPolicy::PreferV2);
        assert!(!negotiator.peer_lacks_v2(NOW));
        end(&mut negotiator, answer);
        negotiator.lost(EndedBy::Peer, NOW);
        assert_eq!(negotiator.peer_lacks_v2(NOW), !probes);
        for _ in 0..3 {
            let expected = match probes {
                true => Outcome::Probe,
                false => Outcome::Use(Version::V1),
            };
            assert_eq!(negotiator.begin(NOW), expected);
            if probes {
                assert_eq!(
                    negotiator.answer(ProbeAnswer::Reply, NOW),
                    Outcome::Use(Version::V2)
                );
            }
            negotiator.lost(EndedBy::Peer, NOW);
        }
        let doubt = DOUBT.get();
        for (ms, lacks) in [(0, !probes), (doubt - 1, !probes), (doubt, !later)] {
            let then = Time::from_millis(NOW.as_millis() + ms);
            assert_eq!(
                negotiator.peer_lacks_v2(then),
                lacks,
                "{answer:?} after {ms} ms"
            );
        }
    }
}

#[test]
fn what_one_transport_finds_out_another_takes_over() {
    let long_ago = Time::from_millis(NOW.as_millis() - 1);
    let all = [
        Known::Nothing,
        Known::Doubtful(long_ago),
        Known::Doubtful(NOW),
        Known::Lacking,
    ];
    // A later element of this list counts more than an earlier one, whichever transport found it
    // out.
    for (own, known) in all.iter().enumerate() {
        for (others, known_by_others) in all.iter().enumerate() {
            let mut negotiator = Negotiator::new(VersionPolicy::PreferV2);
            let expected = all[own.max(others)];
            assert_eq!(known.together(*known_by_others), expected);
            negotiator.learn(expected);
            assert_eq!(negotiator.known(), expected);
            let outcome = match expected {
                Known::Nothing => Outcome::Probe,
                _ => Outcome::Use(Version::V1),
            };
            assert_eq!(negotiator.begin(NOW), outcome);
            assert_eq!(negotiator.known(), expected);
        }
    }
}

#[test]
fn version_two_only_never_falls_back() {
    let mut negotiator = probing(VersionPolicy::V2Only);
    for _ in 0..3 {
        assert_eq!(negotiator.timed_out(NOW), Outcome::Reconnect);
        negotiator.lost(EndedBy::Peer, NOW);
        assert_eq!(negotiator.begin(NOW), Outcome::Probe);
    }
    assert_eq!(
        negotiator.answer(
            ProbeAnswer::Error(RemoteErrorKind::Version { low: 1, high: 1 }),
            NOW
        ),
        Outcome::Unsupported
    );
}

#[test]
fn version_two_announces_larger_messages_by_default() {
    for (policy, wanted, expected) in [
        (VersionPolicy::V1Only, 4096, 4096),
        (VersionPolicy::PreferV2, 4096, 8192),
        (VersionPolicy::V2Only, 4096, 8192),
        (VersionPolicy::PreferV2, 1024, 1024),
        (VersionPolicy::PreferV2, 16384, 16384),
    ] {
        assert_eq!(announced_size(policy, wanted), expected);
    }
}

// covers: V2-01, V2-10, X-17
#[test]
fn receives_hold_what_any_outcome_may_bring() {
    for (policy, own, expected) in [
        (VersionPolicy::V1Only, 1024, 1024),
        (VersionPolicy::V1Only, 65536, 65536),
        (VersionPolicy::PreferV2, 1024, 4096),
        (VersionPolicy::PreferV2, 4096, 4096),
        (VersionPolicy::PreferV2, 8192, 8192),
        (VersionPolicy::V2Only, 1024, 4096),
    ] {
        assert_eq!(receive_size(policy, own), expected);
        // In both versions, every message that the peer may send fits into a Receive, even if the
        // peer sent no private data.
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

/// How a version negotiation ends.
type End = fn(&mut Negotiator, ProbeAnswer);

fn probing(policy: VersionPolicy) -> Negotiator {
    let mut negotiator = Negotiator::new(policy);
    assert_eq!(negotiator.begin(NOW), Outcome::Probe);
    negotiator
}

fn answered(negotiator: &mut Negotiator, answer: ProbeAnswer) {
    assert!(negotiator.answer(answer, NOW) != Outcome::Ignored);
}

fn unanswered(negotiator: &mut Negotiator, _: ProbeAnswer) {
    assert_eq!(negotiator.timed_out(NOW), Outcome::Reconnect);
}

fn lost(negotiator: &mut Negotiator, _: ProbeAnswer) {
    negotiator.lost(EndedBy::Peer, NOW);
}

fn lost_by_us(negotiator: &mut Negotiator, _: ProbeAnswer) {
    negotiator.lost(EndedBy::Us, NOW);
}
