// SPDX-License-Identifier: GPL-2.0

//! Lists of operations on the regions of one call, in any order.

use super::source::Source;
use xprtrdma_proto::{
    conn::Epoch,
    judge::Invalidated,
    rds::Access,
    region::{
        CallRegions,
        QpDrained,
        Region,
        Released, //
    },
    Handle,
    Xid, //
};

const ROOM: usize = 3;

/// What the peer can do with one region, as far as it was told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reach {
    /// Not yet handed to the queue pair, or proved to be out of reach.
    None,
    /// Registered, or perhaps registered.
    Peer,
    /// Registered, with a local invalidation on its way.
    Ending,
    /// In an unknown state until the queue pair is drained.
    Lost,
}

/// Operations on a call's regions.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let mut call: CallRegions<u32, ROOM> = CallRegions::new();
    // What this model knows: the object and the reach of each region, in order.
    let mut model: Vec<(u32, Reach)> = Vec::new();
    let mut posted = 0;
    let mut next = 1;
    let mut epoch = 0;
    while !source.is_empty() {
        match source.below(13) {
            0 => {
                let begun = call.begin(Xid(next), Epoch::from_raw(epoch + 1));
                assert_eq!(begun.is_ok(), model.is_empty());
                if begun.is_ok() {
                    epoch += 1;
                    posted = 0;
                    assert_eq!(call.call(), Xid(next));
                }
            }
            1 | 2 => {
                let of = epoch + u32::from(source.u8() == 255);
                let key = Handle((u32::from(source.u16()) << 8) | 0xff);
                let idle = Region::new(next, key);
                let mapped = idle.map(Access::PeerWrites, Epoch::from_raw(of));
                assert_eq!(mapped.handle(), Handle(key.0 & !0xff));
                let refused = call.push(mapped).is_err();
                assert_eq!(refused, of != epoch || model.len() == ROOM);
                if !refused {
                    model.push((next, Reach::None));
                }
                next += 1;
            }
            3 => {
                call.posted();
                model[posted..].fill_with_reach(Reach::Peer);
                posted = model.len();
            }
            4 => {
                call.post_failed();
                model[posted..].fill_with_reach(Reach::Lost);
                posted = model.len();
            }
            5 => {
                call.abandon();
                posted = model.len();
            }
            6 => {
                let which = usize::from(source.below(4));
                let slot = call.iter().nth(which).and_then(|slot| slot.handle());
                let before = model.clone();
                match call.remote_invalidation(slot, source.bool()) {
                    Invalidated::Own(index, _) => {
                        assert_eq!(model[index].1, Reach::Peer);
                        model[index].1 = Reach::None;
                    }
                    Invalidated::Foreign => {
                        assert!(slot.is_some());
                        assert!(before[which].1 != Reach::Peer);
                    }
                    Invalidated::Nothing => assert_eq!(slot, None),
                }
            }
            7 => {
                let total = call.invalidate(|_, _, _| {});
                let reachable = model.iter().filter(|m| m.1 == Reach::Peer).count();
                assert_eq!(total, reachable);
                model.turn(Reach::Peer, Reach::Ending);
            }
            8 => {
                call.invalidated();
                model.turn(Reach::Ending, Reach::None);
            }
            9 => {
                call.flushed();
                model.turn(Reach::Peer, Reach::Lost);
                model.turn(Reach::Ending, Reach::Lost);
            }
            10 => {
                let of = epoch + u32::from(source.bool());
                call.drained(&QpDrained::after_drain(Epoch::from_raw(of)));
                if of == epoch {
                    model[..].fill_with_reach(Reach::None);
                }
            }
            _ => {
                let mut back = Vec::new();
                let outcome = call.release(|released| {
                    back.push(match released {
                        Released::Unmap(region) => region.unmapped().into_inner(),
                        Released::Recycle(region) => region.into_inner(),
                    });
                });
                let exposed = model.iter().filter(|m| m.1 != Reach::None).count();
                match outcome {
                    Ok(fenced) => {
                        assert_eq!(exposed, 0);
                        assert_eq!(fenced.call(), call.call());
                        let expected: Vec<u32> = model.drain(..).map(|m| m.0).collect();
                        assert_eq!(back, expected);
                        posted = 0;
                    }
                    Err(error) => {
                        assert_eq!(error.regions, exposed);
                        assert!(exposed > 0 && back.is_empty());
                    }
                }
            }
        }
        assert_eq!(call.len(), model.len());
        let exposed = model.iter().filter(|m| m.1 != Reach::None).count();
        assert_eq!(call.exposed(), exposed);
    }
}

/// Changes to what the peer can reach.
trait Change {
    fn fill_with_reach(&mut self, reach: Reach);
    fn turn(&mut self, from: Reach, to: Reach);
}

impl Change for [(u32, Reach)] {
    fn fill_with_reach(&mut self, reach: Reach) {
        for region in self {
            region.1 = reach;
        }
    }

    fn turn(&mut self, from: Reach, to: Reach) {
        for region in self {
            if region.1 == from {
                region.1 = to;
            }
        }
    }
}
