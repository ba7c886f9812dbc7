// SPDX-License-Identifier: GPL-2.0

//! The connections of clients to a server: how they are accepted, how many there may be, and when
//! they end.

use crate::responder_rig::{
    admitted,
    message, //
};
use std::{
    collections::HashSet,
    net::IpAddr, //
};
use xprtrdma_proto::{
    private_data::PRIVATE_DATA_LEN,
    responder::{
        grant::Overdrawn,
        refusal::Fault, //
    },
    served::{
        accept::{
            accept,
            Accepted,
            Own,
            Rejected,
            Request, //
        },
        cause::Cause,
        door::{
            Crowd,
            Doorway,
            Entry,
            Other, //
        },
        life::{
            holds_memory,
            Act,
            Life,
            Patience,
            Progress, //
        },
        lines::{
            Lines,
            CLIENTS,
            OF_ALL,
            OF_ONE,
            SPAN, //
        },
        queues::{
            sends,
            Limits,
            Queues,
            LEAST_SENDS, //
        },
    },
    time::{
        Millis,
        Time, //
    },
    wc::WcStatus,
    PrivateData,
    Thresholds,
    Version, //
};

const OWN: Own = Own {
    receive_size: 4096,
    longest_receive: 4096,
    send_size: 8192,
    invalidates: true,
    reads: 16,
};

fn accepted(own: &Own, private_data: &[u8]) -> Accepted {
    let reads = 16;
    accept(
        own,
        &Request {
            private_data,
            reads,
        },
    )
    .expect("accepted")
}

// covers: RSP-001
#[test]
fn private_data_is_found_wherever_it_is_or_counts_as_absent() {
    let peer = PrivateData {
        remote_invalidation: true,
        send_size: 2048,
        receive_size: 3072,
    };
    let sent = peer.encode();
    let found = Thresholds {
        call: 2048,
        reply: 3072,
        remote_invalidation: true,
    };
    let absent = Thresholds::MINIMUM;
    for before in 0..20 {
        for behind in 0..20 {
            let data = [&vec![0; before][..], &sent, &vec![0; behind]].concat();
            let accepted = accepted(&OWN, &data);
            assert_eq!(accepted.thresholds, found);
            assert!(!accepted.unannounced);
        }
    }
    for wrong in [
        &[][..],
        &[0; 56],
        &sent[..7],
        &sent[1..],
        // Private data with a wrong identifier, and private data with wrong versions of the format.
        &[0xf6, 0xab, 0x0e, 0x19, 1, 1, 3, 3],
        &[0xf6, 0xab, 0x0e, 0x18, 0, 1, 3, 3],
        &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3],
    ] {
        let accepted = accepted(&OWN, wrong);
        assert_eq!(accepted.thresholds, absent);
        assert!(accepted.unannounced);
    }
    // Reserved bits are ignored.
    let reserved = [0xf6, 0xab, 0x0e, 0x18, 1, 0xfe, 3, 3];
    assert!(!accepted(&OWN, &reserved).thresholds.remote_invalidation);
}

// The server's Receives are as large as the client's messages, but not smaller than a minimum and
// not larger than a maximum.
#[test]
fn a_client_of_longer_messages_gets_larger_receives() {
    let own = Own {
        longest_receive: 8192,
        ..OWN
    };
    for (sent, receive, call) in [
        (None, 4096, 1024),
        (Some(1024), 4096, 1024),
        (Some(4096), 4096, 4096),
        (Some(5120), 5120, 5120),
        (Some(8192), 8192, 8192),
        (Some(65536), 8192, 8192),
    ] {
        let data = sent.map(|send_size| {
            PrivateData {
                send_size,
                ..PrivateData::ABSENT
            }
            .encode()
        });
        let accepted = accepted(&own, data.as_ref().map_or(&[], |data| &data[..]));
        assert_eq!(accepted.receive_size, receive);
        assert_eq!(accepted.thresholds.call, call);
        // The client is told the size of the Receives.
        let told = PrivateData::find(&accepted.private_data).unwrap();
        assert_eq!(told.receive_size, receive);
    }
}

// covers: RSP-002, RSP-005
#[test]
fn both_ends_agree_on_the_sizes_whatever_they_announce() {
    for ours in [0, 1, 1024, 1500, 4096, 65536, 262_144, u32::MAX] {
        for theirs in 0..=0xffff_u16 {
            let [send, receive] = theirs.to_be_bytes();
            let sent = [0xf6, 0xab, 0x0e, 0x18, 1, 1, send, receive];
            let own = Own {
                receive_size: ours,
                longest_receive: ours,
                send_size: 4096,
                ..OWN
            };
            let accepted = accepted(&own, &sent);
            let client = PrivateData::find(&sent).unwrap();
            let server = PrivateData::find(&accepted.private_data).unwrap();
            assert!(server.receive_size <= ours.max(1024));
            assert!(server.send_size <= 4096);
            let requester = Thresholds::negotiate(Version::V1, &client, Some(&server));
            // The server can receive the messages that the client sends, and the client can receive
            // the messages that the server sends.
            assert!(requester.call <= accepted.thresholds.call);
            assert!(accepted.thresholds.call <= ours.max(1024));
            assert_eq!(requester.reply, accepted.thresholds.reply);
        }
    }
    let data = accepted(&OWN, &[]).private_data;
    assert_eq!(data, [0xf6, 0xab, 0x0e, 0x18, 1, 1, 7, 3]);
    assert_eq!(data.len(), PRIVATE_DATA_LEN);
}

// covers: RSP-004
#[test]
fn nothing_is_invalidated_unless_both_ends_can() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let own = Own {
            invalidates: ours,
            ..OWN
        };
        let sent = [0xf6, 0xab, 0x0e, 0x18, 1, u8::from(theirs), 3, 3];
        let accepted = accepted(&own, &sent);
        assert_eq!(accepted.thresholds.remote_invalidation, ours && theirs);
        assert_eq!(accepted.private_data[5], u8::from(ours));
    }
}

// covers: RSP-006, RSP-007
#[test]
fn a_client_that_answers_no_reads_is_rejected() {
    for (ours, theirs, expected) in [
        (16, 0, Err(Rejected::NoReads)),
        (0, 16, Err(Rejected::NoReads)),
        (16, 1, Ok(1)),
        (16, 255, Ok(16)),
        (4, 16, Ok(4)),
    ] {
        let own = Own { reads: ours, ..OWN };
        let request = Request {
            private_data: &[],
            reads: theirs,
        };
        assert_eq!(accept(&own, &request).map(|found| found.reads), expected);
    }
}

// covers: RSP-012, RSP-013, RSP-207
#[test]
fn the_newest_idle_connection_makes_room_and_a_busy_one_never() {
    let door = Doorway {
        connections: 8,
        of_one: 4,
        waiting_of_one: 2,
    };
    let enter = |connections, of_one, idle_of_one, idle| {
        door.enter(&Crowd {
            connections,
            of_one,
            waiting_of_one: 1,
            idle_of_one,
            idle,
        })
    };
    // If a client already has the maximum number of waiting connection requests, its next request
    // is rejected. So other clients can still have waiting requests.
    let second = Crowd {
        connections: 2,
        of_one: 2,
        waiting_of_one: 2,
        idle_of_one: true,
        idle: true,
    };
    assert_eq!(door.enter(&second), Entry::Full);
    assert_eq!(enter(7, 3, true, true), Entry::Free);
    // If a client has the maximum number of connections for one client, its new connection replaces
    // an idle connection of the same client, and no connection of another client.
    assert_eq!(enter(4, 4, true, true), Entry::InPlaceOfOwn);
    assert_eq!(enter(4, 4, false, true), Entry::Full);
    assert_eq!(enter(8, 4, false, true), Entry::Full);
    assert_eq!(enter(8, 4, true, true), Entry::InPlaceOfOwn);
    // If the limit on all connections is reached, a new connection replaces an idle connection from
    // the same address. If the same address has no idle connection, the new connection replaces an
    // idle connection from another address.
    assert_eq!(enter(8, 1, true, true), Entry::InPlaceOfOwn);
    assert_eq!(enter(8, 1, false, true), Entry::InPlaceOfAny);
    assert_eq!(enter(8, 1, false, false), Entry::Full);
}

#[test]
fn requests_that_were_given_up_count_until_they_are_dropped() {
    let crowd = |all: &[Other]| {
        let mut crowd = Crowd::default();
        all.iter().for_each(|other| crowd.add(other));
        crowd
    };
    let waiting = Other {
        is_own: true,
        ..Other::default()
    };
    let given_up = Other {
        has_ended: true,
        ..waiting
    };
    let idle = Other {
        is_accepted: true,
        is_idle: true,
        ..waiting
    };
    let ended = Other {
        has_ended: true,
        ..idle
    };
    let of_others = Other {
        is_own: false,
        has_more: true,
        ..idle
    };
    let busy = Other {
        is_idle: false,
        ..idle
    };
    let strange = Other {
        is_own: false,
        ..given_up
    };
    // A request that was given up is no connection any more, but still has its place in the queue.
    let expected = Crowd {
        connections: 1,
        of_one: 1,
        waiting_of_one: 3,
        ..Crowd::default()
    };
    assert_eq!(crowd(&[given_up, waiting, given_up, strange]), expected);
    let door = Doorway {
        connections: 8,
        of_one: 8,
        waiting_of_one: 2,
    };
    assert_eq!(door.enter(&crowd(&[given_up, given_up])), Entry::Full);
    assert_eq!(door.enter(&crowd(&[given_up, ended, strange])), Entry::Free);
    // An ended connection makes no room, and neither does a busy one.
    let expected = Crowd {
        connections: 2,
        of_one: 1,
        idle: true,
        ..Crowd::default()
    };
    assert_eq!(crowd(&[ended, busy, of_others]), expected);
    assert!(crowd(&[idle]).idle_of_one);
    for (other, own, any) in [
        (idle, true, false),
        (of_others, false, true),
        (ended, false, false),
        (busy, false, false),
    ] {
        assert_eq!(other.may_leave(Entry::InPlaceOfOwn), own);
        assert_eq!(other.may_leave(Entry::InPlaceOfAny), any);
        assert!(!other.may_leave(Entry::Free));
    }
}

const PATIENCE: Patience = Patience {
    confirm: Millis::from_secs(30),
    silence: Millis::from_secs(60),
    answer: Millis::from_secs(20),
    transfer: Millis::from_secs(30),
    drain: Millis::from_secs(60),
    tick: Millis::from_secs(5),
    malformed: 16,
};

/// Returns the state of a send queue. `under_way` says whether work requests are in flight.
fn progress(under_way: bool, completed: u32) -> Progress {
    Progress {
        under_way,
        signalled: under_way.into(),
        completed,
        is_in_the_way: false,
    }
}

fn at(seconds: u64) -> Time {
    Time::from_millis(1000 * seconds)
}

/// Calls `tick` every five seconds of simulated time. Returns the requested actions with their
/// times.
fn ticked(life: &mut Life, from: u64, to: u64) -> Vec<(u64, Act)> {
    (from..=to)
        .step_by(5)
        .map(|second| (second, life.tick(at(second))))
        .filter(|(_, act)| *act != Act::Nothing)
        .collect()
}

#[test]
fn a_connection_is_busy_until_its_replies_are_transferred() {
    let waits = progress(true, 0);
    assert!(waits.is_busy(true) && waits.is_busy(false));
    // Messages without RDMA Writes are usually not signalled, so the server does not learn when the
    // client has received them. Such messages do not make the connection busy.
    let message = Progress {
        signalled: 0,
        ..waits
    };
    assert!(message.is_busy(true) && !message.is_busy(false));
    let nothing = progress(false, 1);
    assert!(nothing.is_busy(true) && !nothing.is_busy(false));
}

#[test]
fn the_first_message_or_the_confirmation_begins_and_nothing_begins_twice() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    assert!(!life.may_send());
    assert_eq!(life.message(at(1)), Act::Begin);
    assert_eq!(life.message(at(1)), Act::Nothing);
    assert_eq!(life.established(at(2)), Act::Nothing);
    assert!(life.may_send());
    let mut life = Life::accepting(PATIENCE, false, at(0));
    assert_eq!(life.send_queue(at(1), progress(false, 1)), Act::Nothing);
    assert!(!life.may_send());
    assert_eq!(life.established(at(1)), Act::Begin);
    assert_eq!(life.established(at(1)), Act::Nothing);
    assert_eq!(life.message(at(2)), Act::Nothing);
}

// covers: RSP-011
#[test]
fn a_half_open_connection_ends() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    assert_eq!(ticked(&mut life, 5, 100), [(30, Act::End(Cause::HalfOpen))]);
    assert_eq!(life.established(at(101)), Act::Nothing);
    assert_eq!(life.message(at(101)), Act::Nothing);
    assert!(!life.may_send());
}

#[test]
fn on_iwarp_the_client_speaks_first() {
    for iwarp in [false, true] {
        let mut life = Life::accepting(PATIENCE, iwarp, at(0));
        life.established(at(1));
        assert_eq!(life.may_send(), !iwarp);
        life.message(at(2));
        assert!(life.may_send());
        life.end(Cause::Left);
        assert!(!life.may_send());
    }
}

#[test]
fn on_iwarp_a_client_that_never_speaks_is_not_probed() {
    // A probe would be a message from the server, and on iWARP the server must not send the first
    // message.
    let mut life = Life::accepting(PATIENCE, true, at(0));
    life.established(at(1));
    let end = Act::End(Cause::HalfOpen);
    assert_eq!(ticked(&mut life, 5, 200), [(65, end)]);
    // A client that has sent a message is probed.
    let mut life = Life::accepting(PATIENCE, true, at(0));
    life.established(at(1));
    life.message(at(2));
    assert_eq!(ticked(&mut life, 5, 65), [(65, Act::Probe)]);
}

// covers: RSP-206
#[test]
fn a_silent_client_is_probed_and_then_ends() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(0));
    let end = Act::End(Cause::Silent);
    let mut other = Life::accepting(PATIENCE, false, at(0));
    other.established(at(0));
    assert_eq!(ticked(&mut life, 5, 200), [(60, Act::Probe), (80, end)]);
    // The connection of a client whose adapter answers the probe does not end.
    assert_eq!(ticked(&mut other, 5, 65), [(60, Act::Probe)]);
    // The probe has completed. This is visible only in the counter of completed work requests.
    assert_eq!(other.send_queue(at(65), progress(false, 1)), Act::Nothing);
    assert_eq!(ticked(&mut other, 70, 130), [(125, Act::Probe)]);
    other.message(at(131));
    assert_eq!(ticked(&mut other, 135, 190), []);
}

// covers: RSP-113
#[test]
fn a_send_queue_that_does_not_move_ends_the_connection_of_a_client_that_speaks() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(0));
    // The driver ticks every five seconds. The client sends messages all the time.
    let mut ticked = |from: u64, to: u64, under_way, completed| {
        let acts = (from..=to).step_by(5).map(|second| {
            life.message(at(second));
            assert_eq!(life.tick(at(second)), Act::Nothing);
            let queue = progress(under_way, completed);
            (second, life.send_queue(at(second), queue))
        });
        let acts = acts.filter(|(_, act)| *act != Act::Nothing);
        acts.collect::<Vec<_>>()
    };
    assert_eq!(ticked(5, 100, false, 0), []);
    assert_eq!(ticked(105, 110, true, 0), []);
    // The first completion arrives when most of the permitted time has passed.
    assert_eq!(
        ticked(115, 120, true, 0),
        [(115, Act::Probe), (120, Act::Probe)]
    );
    assert_eq!(ticked(125, 135, true, 1), []);
    assert_eq!(ticked(140, 150, true, 1)[0], (140, Act::Probe));
    // No work request is in flight at this time.
    assert_eq!(ticked(155, 155, false, 1), []);
    let acts = ticked(160, 200, true, 1);
    assert_eq!(acts[0], (170, Act::Probe));
    assert_eq!(acts[3..], [(185, Act::End(Cause::Stalled))]);
}

#[test]
fn a_client_that_completes_little_ends_if_its_memory_is_needed() {
    // A hundred signalled work requests are in flight at any time.
    let ended_after = |is_in_the_way: fn(u64) -> bool, completed: fn(u64) -> u64| {
        let mut life = Life::accepting(PATIENCE, false, at(0));
        life.established(at(0));
        (5..=2000).step_by(5).find(|second| {
            life.tick(at(*second));
            let queue = Progress {
                signalled: 100,
                is_in_the_way: is_in_the_way(*second),
                ..progress(true, completed(*second) as u32)
            };
            life.send_queue(at(*second), queue) == Act::End(Cause::Stalled)
        })
    };
    let slow = |second| second / 25;
    assert_eq!(ended_after(|_| true, slow), Some(65));
    assert_eq!(ended_after(|second| second >= 1000, slow), Some(1055));
    assert_eq!(ended_after(|second| second % 60 != 0, slow), None);
    // The connection does not end if no other call waits for memory, or if other calls wait for
    // memory only in the first 60 seconds.
    assert_eq!(ended_after(|_| false, slow), None);
    assert_eq!(ended_after(|second| second <= 60, slow), None);
    // The connection of a client whose hundred work requests complete within 50 seconds does not
    // end.
    assert_eq!(ended_after(|_| true, |second| 2 * second), None);
}

#[test]
fn many_small_transfers_hold_memory() {
    assert!(!holds_memory(0, 0));
    assert!(!holds_memory(0, 16));
    assert!(holds_memory(0, 17));
    assert!(holds_memory(1, 0));
}

#[test]
fn numbers_of_completions_wrap_and_a_host_that_stood_still_blames_no_slow_client() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(0));
    // Returns the time in seconds at which the connection ends, or `None` if it does not end.
    let mut ended = |from: u64, to: u64, under_way: bool, completed| {
        (from..=to).step_by(5).find(|second| {
            life.tick(at(*second));
            let queue = Progress {
                signalled: if under_way { 100 } else { 0 },
                is_in_the_way: true,
                ..progress(under_way, completed)
            };
            life.send_queue(at(*second), queue) == Act::End(Cause::Stalled)
        })
    };
    let start = u32::MAX - 50;
    assert_eq!(ended(5, 5, false, start), None);
    // The counter wraps around. All hundred work requests in flight at `start` have completed when
    // the counter is 49.
    assert_eq!(ended(10, 25, true, start), None);
    assert_eq!(ended(30, 40, true, u32::MAX), None);
    assert_eq!(ended(10_000, 10_015, true, 1), None);
    assert_eq!(ended(10_020, 10_020, true, 49), None);
    assert_eq!(ended(10_025, 10_050, true, 50), None);
    assert_eq!(ended(10_055, 10_200, true, 51), Some(10_080));
}

#[test]
fn a_send_queue_is_not_blamed_for_a_host_that_stood_still() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(0));
    life.tick(at(5));
    assert_eq!(life.send_queue(at(5), progress(true, 1)), Act::Nothing);
    life.tick(at(10_000));
    assert_eq!(life.send_queue(at(10_000), progress(true, 1)), Act::Nothing);
}

// covers: RSP-208
#[test]
fn time_in_which_the_host_stood_still_does_not_count() {
    for up in [false, true] {
        let mut life = Life::accepting(PATIENCE, false, at(0));
        if up {
            life.established(at(0));
        }
        assert_eq!(ticked(&mut life, 5, 20), []);
        assert_eq!(life.tick(at(10_000)), Act::Nothing);
        let then = ticked(&mut life, 10_005, 10_100);
        let first = if up {
            (10_035, Act::Probe)
        } else {
            (10_005, Act::End(Cause::HalfOpen))
        };
        assert_eq!(then[0], first);
    }
    // The host was suspended or stalled until 9000 s, when the client confirms the connection. The
    // client's silence is counted from that time. After 9001 s the clock goes back to 5 s. The
    // connection does not end because of this step.
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(9_000));
    assert_eq!(life.tick(at(9_001)), Act::Nothing);
    assert_eq!(life.tick(at(5)), Act::Nothing);
    assert_eq!(ticked(&mut life, 9_005, 9_050), []);
}

// covers: RSP-190
#[test]
fn options_are_refused_as_fast_as_the_client_takes_the_answers() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(0));
    for _ in 0..1000 {
        assert_eq!(life.refuse_option(), Act::Nothing);
        life.option_refused();
    }
    // Refused options do not count as malformed messages, and malformed messages do not count as
    // options.
    for _ in 0..8 {
        assert_eq!(life.malformed(), Act::Nothing);
        assert_eq!(life.refuse_option(), Act::Nothing);
    }
    assert_eq!(life.refuse_option(), Act::End(Cause::Options));
    assert_eq!(life.refuse_option(), Act::Nothing);
}

// covers: RSP-154
#[test]
fn malformed_messages_end_the_connection_at_a_rate() {
    let mut life = Life::accepting(PATIENCE, false, at(0));
    life.established(at(0));
    for _ in 0..15 {
        assert_eq!(life.malformed(), Act::Nothing);
    }
    let mut slow = Life::accepting(PATIENCE, false, at(0));
    assert_eq!(life.malformed(), Act::End(Cause::Malformed));
    assert_eq!(life.malformed(), Act::Nothing);
    slow.established(at(0));
    for minute in 1..100 {
        slow.tick(at(61 * minute));
        slow.message(at(61 * minute));
        assert_eq!(slow.malformed(), Act::Nothing);
    }
}

#[test]
fn an_end_has_one_cause_and_each_cause_its_words() {
    let causes = Cause::ALL;
    for cause in causes {
        for established in [false, true] {
            let mut life = Life::accepting(PATIENCE, false, at(0));
            if established {
                life.established(at(0));
            }
            assert_eq!(life.end(cause), Act::End(cause));
            for again in causes {
                assert_eq!(life.end(again), Act::Nothing);
            }
            assert_eq!(ticked(&mut life, 5, 200), []);
        }
    }
    let texts: HashSet<&str> = causes.iter().map(|cause| cause.text()).collect();
    assert_eq!(texts.len(), causes.len());
    for (why, cause) in [
        (Overdrawn::Overrun, Cause::Overrun),
        (Overdrawn::Starved, Cause::Starved),
        (Overdrawn::Lost, Cause::Lost),
    ] {
        assert_eq!(Cause::from(why), cause);
    }
    // The numbers are those of `enum ib_wc_status`. The status of a flushed work request (5) does
    // not say why the queue pair failed. Usually the client has disconnected.
    for status in 0..30 {
        let expected = if status == 5 {
            Cause::Left
        } else {
            Cause::Transfer
        };
        assert_eq!(Cause::from(WcStatus::from_raw(status)), expected);
    }
}

#[test]
fn a_send_queue_takes_the_longest_transfer() {
    let longest = |sends| {
        let (calls, extra) = (64, 16);
        Queues {
            sends,
            calls,
            extra,
        }
        .longest_transfer()
    };
    for pages in (0..300).chain([1026, 1 << 20]) {
        for elements in [0, 1, 2, 6, 13, 30, 32] {
            for segments in [0, 1, 128] {
                let most = sends(pages, elements, segments, 0);
                // In the worst case each segment begins a new work request, although the previous
                // work request is not full.
                let rest = u64::from(elements.max(1)) - 1;
                let cut = u64::from(pages) + u64::from(segments) * (rest + 1);
                let wanted = cut / (rest + 1) + 1;
                assert!(u64::from(longest(most)) >= wanted);
                assert!((most + 2).is_power_of_two());
            }
        }
    }
    // The expected queue lengths for a transfer of 1 MiB are 126 if a work request can have 32
    // elements, and 510 if it can have one element.
    assert_eq!(sends(258, 32, 80, 0), 126);
    assert_eq!(sends(258, 1, 80, 0), 510);
    // RDMA Reads into registered regions need one registration and at least one RDMA Read for each
    // region.
    for (elements, regions) in [(1, 2), (32, 2), (32, 33), (32, 258)] {
        let most = longest(sends(258, elements, 128, regions));
        assert!(most >= 258_u32.div_ceil(elements) + 128);
        assert!(most >= 2 * regions + 128);
    }
    assert_eq!(longest(LEAST_SENDS), 48);
}

#[test]
fn queues_fit_the_device_or_the_connection_is_refused() {
    let wish = Queues {
        sends: 1024,
        calls: 64,
        extra: 24,
    };
    let fit = |work_requests, completions| {
        wish.fit(&Limits {
            work_requests,
            completions,
        })
    };
    assert_eq!(fit(u32::MAX, u32::MAX), Some(wish));
    assert_eq!(fit(1025, 1024 + 88 + 2), Some(wish));
    for work_requests in 0..1100 {
        for completions in 0..1200 {
            let Some(got) = fit(work_requests, completions) else {
                // `fit` fails only if the limits of the device are below the minimum queue lengths.
                assert!(work_requests <= LEAST_SENDS || completions < LEAST_SENDS + 27);
                continue;
            };
            assert!(got.sends < work_requests && got.receives() < work_requests);
            assert!(got.sends + got.receives() + 2 <= completions);
            assert!(got.sends >= LEAST_SENDS && got.calls >= 1);
            assert!(got.sends <= wish.sends && got.calls <= wish.calls);
            assert_eq!(got.extra, wish.extra);
            // `fit` reduces the number of Calls only if the device's queues are too short for all
            // of them.
            let calls = got.calls == wish.calls || got.receives() + 1 == work_requests;
            let least = got.sends == LEAST_SENDS;
            assert!(calls || least);
            let sends = got.sends == wish.sends || got.sends + 1 == work_requests;
            assert!(sends || got.sends + got.receives() + 2 == completions);
        }
    }
}

#[test]
fn a_call_that_needs_more_than_the_send_queue_is_refused() {
    let bytes = message(&[], &[], None).bytes();
    let call = admitted(&bytes);
    for sends in [LEAST_SENDS, 1024] {
        let queues = Queues {
            sends,
            calls: 1,
            extra: 0,
        };
        // One Call may use at most three quarters of the send queue. The other entries are reserved
        // for responses to other Calls, so that these Calls end and release their resources.
        let most = sends / 4 * 3;
        assert_eq!(queues.check(&call, 0), Ok(()));
        assert_eq!(queues.check(&call, most), Ok(()));
        for wrs in [most + 1, sends, u32::MAX] {
            let refusal = queues.check(&call, wrs).expect_err("refused");
            assert_eq!(refusal.xid, call.xid());
            assert_eq!(refusal.fault, Fault::SendQueue);
        }
    }
}

// covers: RSP-210
#[test]
fn a_client_with_many_lines_silences_itself_alone() {
    let (mut lines, mut clients) = (Lines::default(), [None; CLIENTS]);
    let client = |number: u8| IpAddr::from([192, 0, 2, number]);
    let start = Time::from_millis(77);
    for number in 0..u32::from(u8::MAX) {
        // Client 0 requests a log line in each step, so it exceeds the limit for one client.
        let now = start.after(Millis::new(number.into()));
        assert_eq!(
            lines.may_write(&mut clients, client(0), now),
            number < OF_ONE
        );
        if number % 10 == 9 {
            assert!(lines.may_write(&mut clients, client(number as u8), now));
        }
    }
    // The limit on log lines about one client applies to a period of length `SPAN`. After this
    // period, lines may be written again.
    let last = start.after(Millis::new(SPAN.get() - 1));
    assert!(!lines.may_write(&mut clients, client(0), last));
    assert!(lines.may_write(&mut clients, client(0), start.after(SPAN)));
}

#[test]
fn lines_about_all_clients_are_limited() {
    let (mut lines, mut clients) = (Lines::default(), [None; CLIENTS]);
    let now = Time::from_millis(1);
    let mut written = 0;
    // The test uses more addresses than the table can hold, so each address is forgotten before it
    // is used again.
    for number in 0..10 * OF_ALL {
        let address = IpAddr::from([10, 0, 0, (number % 200) as u8]);
        written += u32::from(lines.may_write(&mut clients, address, now));
    }
    assert_eq!(written, OF_ALL);
    assert!(clients.iter().all(Option::is_some));
    let address = IpAddr::from([10, 0, 0, 1]);
    assert!(lines.may_write(&mut clients, address, now.after(SPAN)));
}
