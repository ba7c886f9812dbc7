// SPDX-License-Identifier: GPL-2.0

//! Tests with a hostile peer, on fake devices. These devices have the limits of real adapters, and
//! execute work requests late, early and twice.
//!
//! The fake device counts two kinds of breach:
//!
//! * Memory is unmapped while a key gives access to it.
//! * The device executes a registration of memory that was unmapped before.
//!
//! The tests show which work requests this crate posts and which reports this crate trusts. They do
//! not test the client's choice of xids and its repeated calls, because such a test needs a server.
//! They do not show what a real adapter does, because the fake device has only the limits of that
//! adapter.

use super::*;
use crate::device::fence_registrations;
use crate::tests::fake::{
    breaches,
    completions,
    Adapter, //
};

/// An adapter with low limits.
const NARROW: Adapter = Adapter {
    driver: bindings::rdma_driver_id_RDMA_DRIVER_IRDMA,
    send_sges: 3,
    pages: 256,
    wrs: 1024,
    gaps: false,
};

const ADAPTERS: [Adapter; 3] = [
    NARROW,
    Adapter {
        driver: bindings::rdma_driver_id_RDMA_DRIVER_BNXT_RE,
        send_sges: 6,
        wrs: 4096,
        ..NARROW
    },
    Adapter {
        driver: bindings::rdma_driver_id_RDMA_DRIVER_MLX5,
        send_sges: 30,
        pages: 512,
        wrs: 8192,
        gaps: true,
    },
];

/// Creates and connects a queue pair on a device that imitates this adapter.
fn on(adapter: &Adapter, config: &QpConfig) -> Result<Pair> {
    calm();
    adapter.always();
    Pair::create(config)?.connect()
}

/// Makes the peer send a message whose data contain the number `offset`. If `key` is not `None`,
/// the message also invalidates that key.
fn replies(pair: &Pair, offset: u64, key: Option<u32>) -> Test {
    let data = repeating(b"reply", offset)?;
    let told = Told::Message {
        len: data.len(),
        first: b'r',
        how: Immediate::None,
    };
    let log = &pair.keeper.log;
    let before = log.count(told);
    pair.peer().send(Message {
        data: &data,
        invalidates: key,
        ..Message::default()
    })?;
    log.wait_times(told, before + 1)?;
    Ok(())
}

/// Posts a registration, which the device executes later.
fn post_late(pair: &Pair, mut region: ExposedMr<Lent>) -> Test<Window> {
    pair.post(&mut region)?;
    let window = region.window();
    pair.keeper.kept.lock().exposed = Some(region);
    Ok(window)
}

/// Makes the device execute the posted work requests. Checks that the peer can then write to the
/// memory of `window`, and that no region has become idle.
fn is_lent(pair: &Pair, window: &Window) -> Test {
    pair.peer().complete(9, SUCCESS);
    ensure_eq!(breaches(), 0);
    ensure!(pair.keeper.kept.lock().back.is_none());
    pair.peer().write(window.handle, window.offset, b"answer")?;
    Ok(())
}

/// Makes the peer reply, and checks that the region was returned and the key is no longer valid.
fn is_answered(pair: &Pair, window: &Window) -> Test<(IdleMr, Lent)> {
    replies(pair, window.offset, Some(window.handle))?;
    let back = pair.keeper.kept.lock().back.take();
    ensure!(pair
        .peer()
        .write(window.handle, window.offset, b"late")
        .is_err());
    ensure_eq!(breaches(), 0);
    ensure_eq!(Census::now().violations, 0);
    Ok(back.ok_or(EINVAL)?)
}

/// Posts a message that the peer does not acknowledge. Then posts the registration of a region. The
/// device executes the registration before the message is acknowledged. The peer replies, and the
/// region becomes idle. Then the device repeats the work requests that have not completed. Returns
/// the region, which must be dropped after the queue pair.
fn executes_again(pair: &Pair) -> Test<(IdleMr, Lent)> {
    let peer = pair.peer();
    pair.send(10, 1)?;
    peer.run_ahead();
    let window = post_late(pair, pair.map(0, PAGE_SIZE, Access::RemoteWrite)?)?;
    peer.run_ahead();
    peer.complete(1, SUCCESS);
    peer.run_ahead();
    peer.write(window.handle, window.offset, b"answer")?;
    let back = is_answered(pair, &window)?;
    peer.send_again();
    peer.complete(9, SUCCESS);
    Ok(back)
}

/// The costs of RPC calls: how many work requests, posts and completions the calls need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Costs {
    wrs: u32,
    posts: u32,
    completions: u32,
}

const CALLS: u32 = 64;
const SIGNAL_EVERY: u32 = 64;

const BUSY: QpConfig = QpConfig {
    send_bytes: 1 << 16,
    send_wrs: 512,
    signal_every: SIGNAL_EVERY,
    ..CONFIG
};

/// Makes [`CALLS`] calls, one after the other, each with a region of the given size or without a
/// region.
fn costs(pair: &Pair, region: Option<(Access, usize)>) -> Test<Costs> {
    let peer = pair.peer();
    let mut idle = match region {
        Some((_, len)) => Some((
            IdleMr::alloc(&pair.pd, 256, false)?,
            Lent::of(len / PAGE_SIZE, &[(0, len)])?.as_arrays(),
        )),
        None => None,
    };
    pair.keeper.kept.lock().unforeseen = matches!(region, Some((Access::RemoteRead, _)));
    let (posts, completions_before) = (Verb::PostSend.calls(), completions());
    let mut wrs = 0;
    for _ in 0..CALLS {
        let Some(((_, len), (mr, lent))) = region.zip(idle.take()) else {
            pair.send(64, 1)?;
            wrs += peer.sends();
            peer.complete(9, SUCCESS);
            replies(pair, 0, None)?;
            continue;
        };
        let access = region.map_or(Access::RemoteRead, |(access, _)| access);
        let window = post_late(pair, mr.map(lent, 0, access).map_err(|e| e.error)?)?;
        wrs += peer.sends();
        peer.complete(9, SUCCESS);
        // The peer accesses all bytes of the region, up to the last one.
        let last = window.offset + len as u64 - 1;
        match access {
            Access::RemoteRead => drop(peer.read(window.handle, last, 1)?),
            Access::RemoteWrite => peer.write(window.handle, last, b"!")?,
        }
        idle = Some(is_answered(pair, &window)?);
    }
    Ok(Costs {
        wrs,
        posts: Verb::PostSend.calls() - posts,
        completions: completions() - completions_before,
    })
}

#[kunit_tests(xprtrdma_qp_adapter)]
mod suite {
    use super::*;

    // The device executes the registration late, so the peer's invalidation refers to a key that is
    // not valid yet.
    #[test]
    fn the_next_key_may_be_invalidated_early() -> Test {
        for adapter in &ADAPTERS {
            let pair = on(adapter, &CONFIG)?;
            let window = post_late(&pair, pair.map(0, PAGE_SIZE, Access::RemoteWrite)?)?;
            replies(&pair, window.offset ^ 1 << 40, Some(window.handle))?;
            is_lent(&pair, &window)?;
            drop(is_answered(&pair, &window)?);
        }
        Ok(())
    }

    // The device executes the registration early, and the peer invalidates the key before the
    // device transmits the Send.
    #[test]
    fn a_reply_before_the_send_gives_nothing_back() -> Test {
        for adapter in &ADAPTERS {
            let pair = on(adapter, &CONFIG)?;
            let window = post_late(&pair, pair.map(0, PAGE_SIZE, Access::RemoteWrite)?)?;
            ensure_at_least!(pair.peer().run_ahead(), 1);
            ensure_eq!(pair.peer().sends(), 1);
            replies(&pair, 0, Some(window.handle))?;
            let region = {
                let mut kept = pair.keeper.kept.lock();
                ensure!(kept.back.is_none());
                kept.exposed.take()
            };
            let mut region = region.ok_or(EINVAL)?;
            pair.post_invalidate(1, &mut region)?;
            pair.keeper.kept.lock().exposed = Some(region);
            pair.peer().complete(9, SUCCESS);
            pair.told(Told::Invalidated(1))?;
            ensure!(pair.keeper.kept.lock().back.take().is_some());
            ensure_eq!((breaches(), Census::now().violations), (0, 0));
        }
        Ok(())
    }

    // A retransmitted call uses the same memory and the same region.
    #[test]
    fn the_first_reply_gives_nothing_back_of_a_call_that_is_sent_again() -> Test {
        for adapter in &ADAPTERS {
            let pair = on(adapter, &CONFIG)?;
            let first = post_late(&pair, pair.map(0, PAGE_SIZE, Access::RemoteWrite)?)?;
            is_lent(&pair, &first)?;
            let (mr, lent) = is_answered(&pair, &first)?;
            let again = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
            let second = post_late(&pair, again)?;
            for key in [first.handle, second.handle] {
                replies(&pair, first.offset, Some(key))?;
            }
            is_lent(&pair, &second)?;
            drop(is_answered(&pair, &second)?);
        }
        Ok(())
    }

    // The peer guesses every key that the region can have, each time with another offset.
    #[test]
    fn guesses_at_rate_give_nothing_back() -> Test {
        let pair = on(&NARROW, &CONFIG)?;
        let window = post_late(&pair, pair.map(0, PAGE_SIZE, Access::RemoteWrite)?)?;
        for guess in 0..256 {
            let offset = window.offset ^ u64::from(guess + 1) << 13;
            replies(&pair, offset, Some(window.handle & !0xff | guess))?;
        }
        is_lent(&pair, &window)?;
        drop(is_answered(&pair, &window)?);
        Ok(())
    }

    #[test]
    fn a_registration_that_is_executed_again_reaches_nothing() -> Test {
        let rxe = Adapter {
            driver: bindings::rdma_driver_id_RDMA_DRIVER_RXE,
            ..NARROW
        };
        for fenced in [false, true] {
            calm();
            rxe.always();
            fence_registrations(fenced);
            let pair = Pair::create(&CONFIG)?.connect()?;
            let back = executes_again(&pair)?;
            ensure_eq!(breaches(), 0);
            drop(pair.owner);
            drop(back);
        }
        calm();
        Ok(())
    }

    // The fake device executes the registration a second time. This crate expects this only of rxe,
    // so it takes no precautions. The second execution makes the key valid again after the memory
    // was returned. The fake device counts this as a breach.
    #[test]
    fn another_device_that_does_so_finds_a_breach() -> Test {
        let back = executes_again(&on(&NARROW, &CONFIG)?)?;
        ensure_eq!(breaches(), 1);
        drop(back);
        Ok(())
    }

    // These calls are like the client's READ, WRITE and GETATTR. One Send in 64 work requests is
    // signalled. Posts of Receives are not counted.
    #[test]
    fn calls_take_two_work_requests_one_post_and_one_completion() -> Test {
        for adapter in &ADAPTERS {
            for (region, wrs) in [
                (None, CALLS),
                (Some((Access::RemoteWrite, 4096)), 2 * CALLS),
                (Some((Access::RemoteRead, 4096)), 2 * CALLS),
                (Some((Access::RemoteWrite, 1 << 20)), 2 * CALLS),
                (Some((Access::RemoteRead, 1 << 20)), 2 * CALLS),
            ] {
                let pair = on(adapter, &BUSY)?;
                let expected = Costs {
                    wrs,
                    posts: CALLS,
                    completions: CALLS + wrs / SIGNAL_EVERY,
                };
                ensure_eq!(costs(&pair, region)?, expected);
            }
        }
        Ok(())
    }
}
