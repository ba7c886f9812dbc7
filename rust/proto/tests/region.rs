// SPDX-License-Identifier: GPL-2.0

//! Memory regions: the steps of one region, the regions of a call, and random lives against a model.

use std::collections::BTreeMap;

use proptest::{
    prelude::*,
    test_runner::RngAlgorithm::ChaCha,
    test_runner::TestRng,
    test_runner::TestRunner, //
};
use xprtrdma_proto::{
    chunk::Handle,
    conn::Epoch,
    judge::Invalidated,
    rds::Access,
    region::{
        CallRegions,
        Exposed,
        Flushed,
        Idle,
        Invalidating,
        Mapped,
        QpDrained,
        Recycle,
        Region,
        Registered,
        Registering,
        Released,
        RemotelyInvalidated,
        State,
        Unmapping,
        Unreleased, //
    },
    Counter,
    Xid, //
};

// covers: V1-106
#[test]
fn each_mapping_changes_the_key_and_only_its_low_octet() {
    for key in [0, 0x100, 0x1ff, 0xdead_beef, u32::MAX] {
        let mut region = Region::new((), Handle(key));
        let mut seen = Vec::new();
        for _ in 0..256 {
            let mapped = region.map(Access::PeerReads, epoch(1));
            let Handle(new) = mapped.handle();
            assert_eq!(new >> 8, key >> 8);
            assert!(!seen.contains(&new));
            seen.push(new);
            region = mapped.post().sent().invalidate().done().unmapped();
            assert_eq!(region.handle(), Handle(new));
        }
        assert_eq!(region.handle(), Handle(key));
    }
}

// covers: V1-103, V1-104, RDS-24, RDS-27
#[test]
fn the_states_say_who_can_reach_the_memory() {
    for (exposed, expected) in [
        (Idle::EXPOSED, false),
        (Mapped::EXPOSED, false),
        (Registering::EXPOSED, true),
        (Registered::EXPOSED, true),
        (RemotelyInvalidated::EXPOSED, false),
        (Invalidating::EXPOSED, true),
        (Flushed::EXPOSED, true),
        (Unmapping::EXPOSED, false),
        (Recycle::EXPOSED, false),
    ] {
        assert_eq!(exposed, expected);
    }
    let mapped = mapped(1, 0x100);
    assert_eq!(mapped.state(), "Mapped");
    assert_eq!(mapped.access(), Access::PeerWrites);
    let registering = mapped.post();
    assert_eq!(registering.state(), "Registering");
    let registered = registering.sent();
    assert_eq!(registered.state(), "Registered");
    let invalid = registered.remotely_invalidated();
    assert_eq!(invalid.state(), "RemotelyInvalidated");
    let unmapping = invalid.unmap();
    assert_eq!(unmapping.state(), "Unmapping");
    assert_eq!(unmapping.access(), Access::PeerWrites);
    let idle = unmapping.unmapped();
    assert_eq!(idle.state(), "Idle");
    assert_eq!(idle.into_inner(), 1);
}

// covers: V1-110, MAL-105
#[test]
fn a_flushed_region_is_given_up_by_its_own_queue_pair_only() {
    let flushed = mapped(1, 0x100).post().flush();
    let kept = flushed.recycle(&QpDrained::after_drain(epoch(2))).err();
    assert_eq!(kept.as_ref().map(Region::state), Some("Flushed"));
    let recycled = kept.map(|region| region.recycle(&QpDrained::after_drain(epoch(1))));
    let given_up = recycled.and_then(Result::ok);
    assert_eq!(given_up.map(|region| region.into_inner()), Some(1));
}

// covers: CM-16, CM-18, MAL-013, MAL-014, MAL-015, MAL-016
#[test]
fn a_remote_invalidation_hits_one_region_of_this_call_or_ends_the_connection() {
    for (agreed, counter) in [(true, Counter::Reminv), (false, Counter::ReminvUnexpected)] {
        let mut call = call::<4>(3);
        // Not yet advertised: the peer cannot know the key.
        let key = Some(Handle(0x201));
        assert_eq!(call.remote_invalidation(key, agreed), Invalidated::Foreign);
        call.posted();
        assert_eq!(call.remote_invalidation(None, agreed), Invalidated::Nothing);
        for foreign in [0, 0x200, 0x202, 0x401, 0x501, u32::MAX] {
            let foreign = Some(Handle(foreign));
            assert_eq!(
                call.remote_invalidation(foreign, agreed),
                Invalidated::Foreign
            );
            assert_eq!(call.exposed(), 3);
        }
        assert_eq!(
            call.remote_invalidation(key, agreed),
            Invalidated::Own(1, counter)
        );
        assert_eq!(
            states(&call),
            ["Registered", "RemotelyInvalidated", "Registered"]
        );
        // A second time it is not a region the peer can reach any more.
        assert_eq!(call.remote_invalidation(key, agreed), Invalidated::Foreign);
        // The others still get local invalidation, in order, the last one signalled.
        let mut built = Vec::new();
        assert_eq!(
            call.invalidate(|handle, &mut id, last| built.push((handle, id, last))),
            2
        );
        assert_eq!(built, [(Handle(0x101), 1, false), (Handle(0x301), 3, true)]);
        assert_eq!(
            call.remote_invalidation(Some(Handle(0x101)), agreed),
            Invalidated::Foreign
        );
    }
}

// covers: V1-098, V1-103, V1-105, V1-109, CM-18, CM-19, RDS-06, RDS-38, RDS-47
#[test]
fn a_call_is_completed_only_when_nothing_is_exposed() {
    let refused = |call: &mut CallRegions<u32, 4>, regions| {
        let mut given = 0;
        let outcome = call.release(|_| given += 1).map(|fenced| fenced.call());
        assert_eq!(outcome, Err(Exposed { regions }));
        assert_eq!(given, 0);
    };
    // With a peer that invalidates one region, and with one that leaves all of it to us.
    for invalidated in [1, 0] {
        let mut call = call::<4>(2);
        call.posted();
        refused(&mut call, 2);
        if invalidated == 1 {
            call.remote_invalidation(Some(Handle(0x201)), true);
            refused(&mut call, 1);
        }
        assert_eq!(call.invalidate(|_, _, _| {}), 2 - invalidated);
        refused(&mut call, 2 - invalidated);
        call.invalidated();
        let mut idle = Vec::new();
        let fenced = call.release(|released| idle.push(unmap(released)));
        assert_eq!(fenced.map(|fenced| fenced.call()).ok(), Some(Xid(7)));
        assert_eq!(idle, [Some(1), Some(2)]);
        assert!(call.is_empty());
    }
}

// covers: V1-102, V1-105, MAL-103, MAL-104, RDS-42, RDS-43
#[test]
fn after_a_flush_only_the_drain_fences() {
    // How far the call got before the connection failed.
    let before: [fn(&mut CallRegions<u32, 4>); 4] = [
        |call| call.post_failed(),
        |call| {
            call.posted();
            call.flushed();
        },
        |call| {
            call.posted();
            call.invalidate(|_, _, _| {});
            call.flushed();
        },
        // The drain itself is enough.
        |call| call.posted(),
    ];
    for fail in before {
        let mut call = call::<4>(2);
        fail(&mut call);
        // A late success of another work request does not bring a flushed region back.
        if call.iter().all(|slot| slot.state() == "Flushed") {
            call.invalidated();
            assert_eq!(call.invalidate(|_, _, _| {}), 0);
        }
        assert_eq!(
            call.release(|_| {}).map(|fenced| fenced.call()),
            Err(Exposed { regions: 2 })
        );
        call.drained(&QpDrained::after_drain(epoch(2)));
        assert_eq!(call.exposed(), 2);
        call.drained(&QpDrained::after_drain(epoch(1)));
        assert_eq!(states(&call), ["Recycle", "Recycle"]);
        let mut replaced = 0;
        let fenced = call.release(|released| {
            assert!(matches!(released, Released::Recycle(_)));
            replaced += 1;
        });
        assert_eq!(fenced.map(|fenced| fenced.call()).ok(), Some(Xid(7)));
        assert_eq!(replaced, 2);
    }
}

// covers: V1-100, V1-102
#[test]
fn a_reply_that_had_arrived_survives_the_loss_of_the_connection() {
    let mut call = call::<4>(3);
    call.posted();
    // The Reply invalidated one; the local invalidation of the others is flushed.
    call.remote_invalidation(Some(Handle(0x101)), true);
    call.invalidate(|_, _, _| {});
    call.flushed();
    call.drained(&QpDrained::after_drain(epoch(1)));
    assert_eq!(states(&call), ["RemotelyInvalidated", "Recycle", "Recycle"]);
    let mut back = Vec::new();
    let fenced = call.release(|released| back.push(unmap(released)));
    assert!(fenced.is_ok());
    assert_eq!(back, [Some(1), None, None]);
    // The retransmission of another call starts with nothing.
    assert_eq!(call.begin(Xid(8), epoch(2)), Ok(()));
    assert!(call.is_empty());
}

// covers: V1-097, RDS-25
#[test]
fn a_call_that_cannot_be_built_gives_its_regions_back_at_once() {
    for abandon in [true, false] {
        let mut call = call::<4>(2);
        if abandon {
            call.abandon();
            assert_eq!(states(&call), ["Unmapping", "Unmapping"]);
        }
        let mut idle = Vec::new();
        assert!(call.release(|released| idle.push(unmap(released))).is_ok());
        assert_eq!(idle, [Some(1), Some(2)]);
    }
}

// covers: V1-104, V1-110
#[test]
fn a_set_holds_its_own_regions_up_to_its_size() {
    let mut call = call::<2>(2);
    let extra = call.push(mapped(9, 0x900));
    assert_eq!(extra.map_err(|region| *region.mr()), Err(9));
    assert_eq!(call.begin(Xid(8), epoch(1)), Err(Unreleased));
    assert_eq!((call.call(), call.len()), (Xid(7), 2));
    assert!(call.release(|_| {}).is_ok());
    assert_eq!(call.begin(Xid(8), epoch(2)), Ok(()));
    // Mapped for the connection before this one.
    let old = call.push(mapped(9, 0x900));
    assert_eq!(old.map_err(|region| *region.mr()), Err(9));
    assert!(call.is_empty());
    // Without any region there is nothing to wait for.
    assert_eq!(call.invalidate(|_, _, _| {}), 0);
    let fenced = call.release(|_| {});
    assert_eq!(fenced.map(|fenced| fenced.call()).ok(), Some(Xid(8)));
    // Nothing is advertised by a set of size zero.
    let mut none = CallRegions::<u32, 0>::default();
    assert_eq!(none.begin(Xid(1), epoch(1)), Ok(()));
    assert!(none.push(mapped(1, 0x100)).is_err());
    assert!(none.release(|_| {}).is_ok());
}

/// What the driver may do to a call, in any order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Push,
    Posted,
    PostFailed,
    Abandon,
    Remote(u8),
    Invalidate,
    Invalidated,
    Flushed,
    Drained,
    DrainedOther,
    Release,
    Begin,
}

// covers: V1-098, V1-103, V1-104, V1-105, V1-113, MAL-013, MAL-015
#[test]
fn random_lives_agree_with_the_model() {
    const N: usize = 5;
    const POOL: u32 = 8;
    let op = prop_oneof![
        4 => Just(Op::Push),
        4 => Just(Op::Posted),
        1 => Just(Op::PostFailed),
        1 => Just(Op::Abandon),
        3 => (0..6u8).prop_map(Op::Remote),
        3 => Just(Op::Invalidate),
        3 => Just(Op::Invalidated),
        1 => Just(Op::Flushed),
        2 => Just(Op::Drained),
        1 => Just(Op::DrainedOther),
        4 => Just(Op::Release),
        2 => Just(Op::Begin),
    ];
    let ops = prop::collection::vec(op, 0..120);
    let outcome = runner(600).run(&ops, |ops| {
        let mut pool: Vec<_> = (1..=POOL)
            .map(|id| Region::new(id, Handle(id << 8)))
            .collect();
        let mut call = CallRegions::<u32, N>::new();
        let mut now = 1;
        prop_assert_eq!(call.begin(Xid(0), epoch(now)), Ok(()));
        // The model: the state by name, in order; and how many regions were given up.
        let mut model: Vec<(u32, &str)> = Vec::new();
        let mut replaced = 0;
        let mut fences = 0;
        for op in ops {
            let exposed = model.iter().filter(|(_, state)| reachable(state)).count();
            match op {
                Op::Push => {
                    let Some(idle) = pool.pop() else { continue };
                    let id = *idle.mr();
                    match call.push(idle.map(Access::PeerReads, epoch(now))) {
                        Ok(()) => {
                            prop_assert!(model.len() < N);
                            model.push((id, "Mapped"));
                        }
                        Err(region) => {
                            prop_assert_eq!(model.len(), N);
                            pool.push(region.abandon().unmapped());
                        }
                    }
                }
                Op::Posted => {
                    call.posted();
                    change(&mut model, &["Mapped"], "Registered");
                }
                Op::PostFailed => {
                    call.post_failed();
                    change(&mut model, &["Mapped"], "Flushed");
                }
                Op::Abandon => {
                    call.abandon();
                    change(&mut model, &["Mapped"], "Unmapping");
                }
                Op::Remote(which) => {
                    let slot = call.iter().nth(which.into()).and_then(|slot| slot.handle());
                    let key = slot.unwrap_or(Handle(0xffff_ff00));
                    let hit = call.remote_invalidation(Some(key), true);
                    match model.get_mut(usize::from(which)) {
                        Some((_, state)) if *state == "Registered" => {
                            *state = "RemotelyInvalidated";
                            let own = Invalidated::Own(which.into(), Counter::Reminv);
                            prop_assert_eq!(hit, own);
                        }
                        _ => prop_assert_eq!(hit, Invalidated::Foreign),
                    }
                }
                Op::Invalidate => {
                    let mut built = Vec::new();
                    let total = call.invalidate(|_, &mut id, last| built.push((id, last)));
                    let expected: Vec<u32> = model
                        .iter()
                        .filter(|(_, state)| *state == "Registered")
                        .map(|(id, _)| *id)
                        .collect();
                    prop_assert_eq!(total, expected.len());
                    let ids: Vec<u32> = built.iter().map(|(id, _)| *id).collect();
                    prop_assert_eq!(ids, expected);
                    let lasts = built.iter().filter(|(_, last)| *last).count();
                    prop_assert_eq!(lasts, total.min(1));
                    prop_assert!(built.last().is_none_or(|(_, last)| *last));
                    change(&mut model, &["Registered"], "Invalidating");
                }
                Op::Invalidated => {
                    call.invalidated();
                    change(&mut model, &["Invalidating"], "Unmapping");
                }
                Op::Flushed => {
                    call.flushed();
                    change(&mut model, &["Registered", "Invalidating"], "Flushed");
                }
                Op::Drained => {
                    call.drained(&QpDrained::after_drain(epoch(now)));
                    change(
                        &mut model,
                        &["Registered", "Invalidating", "Flushed"],
                        "Recycle",
                    );
                    prop_assert_eq!(call.exposed(), 0);
                }
                Op::DrainedOther => call.drained(&QpDrained::after_drain(epoch(now + 1))),
                Op::Release => {
                    let mut back = Vec::new();
                    let outcome = call.release(|released| back.push(released));
                    match outcome {
                        Ok(fenced) => {
                            prop_assert_eq!(exposed, 0);
                            prop_assert_eq!(fenced.call(), call.call());
                            prop_assert_eq!(back.len(), model.len());
                            for (released, (id, state)) in back.into_iter().zip(model.drain(..)) {
                                match released {
                                    Released::Unmap(region) => {
                                        prop_assert!(state != "Recycle");
                                        prop_assert_eq!(*region.mr(), id);
                                        pool.push(region.unmapped());
                                    }
                                    Released::Recycle(region) => {
                                        prop_assert_eq!(state, "Recycle");
                                        prop_assert_eq!(region.into_inner(), id);
                                        replaced += 1;
                                    }
                                }
                            }
                            fences += 1;
                        }
                        Err(error) => {
                            prop_assert!(exposed > 0);
                            prop_assert_eq!(error, Exposed { regions: exposed });
                            prop_assert!(back.is_empty());
                        }
                    }
                }
                Op::Begin => {
                    let outcome = call.begin(Xid(fences), epoch(now + 1));
                    prop_assert_eq!(outcome.is_ok(), model.is_empty());
                    if outcome.is_ok() {
                        now += 1;
                        prop_assert_eq!(call.call(), Xid(fences));
                    }
                }
            }
            let expected: Vec<&str> = model.iter().map(|(_, state)| *state).collect();
            prop_assert_eq!(states(&call), expected);
            prop_assert_eq!(call.len(), model.len());
            let exposed = model.iter().filter(|(_, state)| reachable(state)).count();
            prop_assert_eq!(call.exposed(), exposed);
            // Idle, in use and given up make all there ever were, each once.
            let total = pool.len() + call.len() + replaced;
            prop_assert_eq!(total, POOL as usize);
            let mut ids: BTreeMap<u32, usize> = BTreeMap::new();
            for id in pool
                .iter()
                .map(|r| *r.mr())
                .chain(model.iter().map(|m| m.0))
            {
                *ids.entry(id).or_default() += 1;
            }
            prop_assert!(ids.values().all(|&n| n == 1));
        }
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

/// Section 6.3 in the words of the table: from which states the peer can access.
fn reachable(state: &str) -> bool {
    matches!(state, "Registered" | "Invalidating" | "Flushed")
}

fn change(model: &mut [(u32, &str)], from: &[&str], to: &'static str) {
    for (_, state) in model {
        if from.contains(state) {
            *state = to;
        }
    }
}

fn states<const N: usize>(call: &CallRegions<u32, N>) -> Vec<&'static str> {
    call.iter().map(|slot| slot.state()).collect()
}

/// The number of a region that may be used again; none of one that has to be replaced.
fn unmap(released: Released<u32>) -> Option<u32> {
    match released {
        Released::Unmap(region) => Some(region.unmapped().into_inner()),
        Released::Recycle(_) => None,
    }
}

/// Call 7 on connection 1 with `regions` mapped regions 1, 2, ... of keys 0x101, 0x201, ...
fn call<const N: usize>(regions: u32) -> CallRegions<u32, N> {
    let mut call = CallRegions::new();
    assert_eq!(call.begin(Xid(7), epoch(1)), Ok(()));
    for id in 1..=regions {
        assert!(call.push(mapped(id, id << 8)).is_ok());
    }
    call
}

fn mapped(id: u32, key: u32) -> Region<Mapped, u32> {
    Region::new(id, Handle(key)).map(Access::PeerWrites, epoch(1))
}

fn epoch(n: u32) -> Epoch {
    Epoch::from_raw(n)
}

fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(ChaCha, &[0x5d; 32]))
}
