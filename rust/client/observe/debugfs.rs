// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs, in `xprtrdma_rs/`:
//!
//! | File | Content |
//! | --- | --- |
//! | `parameters` | the values for connections and mounts that are made now |
//! | `measure_latency` | whether the stages of calls are timed; writing `1` or `0` changes this |
//!
//! and for each transport, in `xprtrdma_rs/<its number>/`:
//!
//! | File | Content |
//! | --- | --- |
//! | `state` | peer, connection, sizes, credits, queues, regions, last disconnects |
//! | `counters` | counters of unusual events, by name |
//! | `latency` | how many calls took how long in each stage; counted while stages are timed |
//! | `disconnect` | writing `1` ends the connection |

use crate::{
    connection::Connection,
    counters::Ordinary,
    driver::Rdma,
    link::Link,
    log::{
        Details,
        Over,
        Reason,
        Seconds, //
    },
    machine::now,
    observe::moved,
    params, //
};
use core::fmt;
use kernel::{
    prelude::*,
    str::CString,
    sync::Arc,
    uaccess::UserSliceReader, //
};
use xprtrdma_proto::{
    latency::{
        below_us,
        Stage,
        BUCKETS, //
    },
    v2::negotiate::Known,
    Counter, //
};
use xprtrdma_sunrpc::{
    common::Common,
    debugfs::{
        read_switch,
        File, //
    },
    latency,
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// The objects whose state the files of one transport show.
pub(crate) struct Shown {
    xprt: BackRef<Rdma>,
    link: Arc<Link>,
}

/// The files of one transport. Dropping them waits for their readers and writers.
pub(crate) type Files = [File<Arc<Shown>>; 4];

/// Makes the files of a transport. May sleep.
pub(crate) fn files(xprt: &Xprt<Rdma>, link: &Arc<Link>) -> Result<Files> {
    let name = CString::try_from_fmt(fmt!("{}", xprt.id()))?;
    let dir = xprt.common().debugfs().subdir(&name)?;
    let shown = Shown {
        xprt: xprt.back_ref(),
        link: link.clone(),
    };
    let shown = Arc::new(shown, GFP_KERNEL)?;
    Ok([
        File::new(&dir, c"state", shown.clone(), Some(show_state), None)?,
        File::new(&dir, c"counters", shown.clone(), Some(show_counters), None)?,
        File::new(&dir, c"latency", shown.clone(), Some(show_latency), None)?,
        File::new(&dir, c"disconnect", shown, None, Some(write_disconnect))?,
    ])
}

/// The files of the module. Dropping them waits for their readers and writers.
pub(crate) type Global = (File<Arc<Common>>, File<()>);

/// Makes the files of the module. May sleep.
pub(crate) fn global(common: &Arc<Common>) -> Result<Global> {
    let dir = common.debugfs();
    Ok((
        File::new(
            dir,
            c"parameters",
            common.clone(),
            Some(show_parameters),
            None,
        )?,
        latency::switch_file(dir)?,
    ))
}

fn show_parameters(common: &Arc<Common>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    params::show(common, f)
}

fn show_state(shown: &Arc<Shown>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (xprt, link) = (&shown.xprt, &shown.link);
    // Name of the transport in sunrpc's sysfs and in the log.
    writeln!(f, "transport: xprt-{}-rdma", xprt.id())?;
    // Number of the network namespace, as `lsns -t net` shows it.
    writeln!(f, "netns: {}", xprt.net().number())?;
    // Address and port of the server.
    match xprt.peer() {
        Some(peer) => writeln!(f, "peer: {peer}")?,
        None => writeln!(f, "peer: unknown")?,
    }
    // Address of this host on the present or the last connection.
    if let Some(local) = link.local_addr() {
        writeln!(f, "local: {local}")?;
    }
    // Maximum number of requests in flight. The number was set when the mount was made.
    writeln!(f, "slots: {}", xprt.slots().count())?;
    link.machine().with_conn(|conn| {
        // State of the transport: `down`, `waiting` (back-off), `resolving address`, `resolving
        // route`, `creating queue pair`, `connecting`, `negotiating version`, `up`, `closing` or
        // `stopped`.
        writeln!(f, "phase: {}", conn.phase().name())?;
        // Number of the last attempt to connect.
        writeln!(f, "epoch: {}", conn.epoch().raw())?;
        // Number of failed attempts and short connections since the last reply.
        writeln!(f, "failures in a row: {}", conn.failures())?;
        // Reason of the last attempt that failed, how long the attempt took, and when it ended.
        if let Some(last) = conn.last_failure() {
            let ago = now().since(last.at);
            let (reason, lasted) = (Reason(last.reason, last.errno), Seconds(last.lasted));
            writeln!(
                f,
                "last failure: {reason} (after {lasted}), {} ago",
                Seconds(ago)
            )?;
        }
        // Value of the parameter `rdma_version` when the mount was made.
        writeln!(
            f,
            "version wanted: {}",
            params::number_of(conn.version_policy())
        )?;
        // `unknown`: nothing is known. `refused`: the server lacks version 2. `doubtful`: the
        // server did not say clearly whether it has version 2, so the client asks again after ten
        // minutes.
        match conn.version_known() {
            Known::Nothing => writeln!(f, "peer's version 2: unknown")?,
            Known::Doubtful(since) => {
                let ago = Seconds(now().since(since));
                writeln!(f, "peer's version 2: doubtful, {ago} ago")?;
            }
            Known::Lacking => writeln!(f, "peer's version 2: refused")?,
        }
        // Value of the parameter `idle_timeout` when the mount was made.
        match conn.idle_timeout() {
            Some(idle) => writeln!(f, "idle timeout: {} s", idle.get() / 1000),
            None => writeln!(f, "idle timeout: never"),
        }
    })?;
    // Memory that the slots hold for calls and replies.
    writeln!(f, "message buffers: {} bytes", xprt.buffered())?;
    if let Some(qp) = link.current() {
        let conn = qp.handler();
        let thresholds = conn.thresholds();
        let (bytes, wrs) = qp.send_occupancy();
        let (made, free) = usage(xprt, conn);
        let credits = conn.credits();
        // The RDMA device and its port. This line and those up to `registrations` exist only while
        // there is a connection.
        writeln!(
            f,
            "device: {}, port {}",
            conn.device().name(),
            conn.device().port
        )?;
        // Version of RPC-over-RDMA.
        writeln!(f, "version: {}", conn.version().number())?;
        // Sizes of the largest messages that are sent and received without RDMA, in bytes.
        writeln!(
            f,
            "inline: {} out, {} in",
            thresholds.call, thresholds.reply
        )?;
        match conn.disbelief() {
            None => {
                // Whether the server announced that it invalidates regions with its replies, and
                // whether it does so. Linux servers invalidate regions without an announcement.
                // `not asked for` is followed by the reason: `this device does not prove it`, `the
                // server has invalidated other regions`, or `remote_invalidation=never`.
                let (agreed, unannounced) = moved(xprt).invalidations();
                writeln!(
                    f,
                    "remote invalidation: announced by the server: {}; used by it: {}",
                    yes_or_no(thresholds.remote_invalidation),
                    yes_or_no(agreed + unannounced > 0)
                )?;
            }
            Some(why) => writeln!(f, "remote invalidation: not asked for, {}", why.reason())?,
        }
        // Credits that the client requests, and credits that the server has granted: the maximum
        // number of requests in flight. A call that was given up holds its credit until the server
        // has sent the reply.
        writeln!(
            f,
            "credits: {} requested, {} granted, {} with calls given up",
            credits.request().0,
            credits.granted(),
            credits.abandoned()
        )?;
        // Number of work requests and bytes in the send queue that are in use now.
        writeln!(f, "send queue: {wrs} work requests, {bytes} bytes")?;
        // Number of posted Receives. Normally it is at least the sum of credits and callbacks.
        writeln!(f, "receives posted: {}", qp.receives_posted())?;
        // Memory regions of this connection.
        writeln!(
            f,
            "regions: {made} made, {free} free, {} pages each",
            conn.regions().pages()
        )?;
        // How registrations run, on rxe only: `at once` or `behind a fence` (parameter
        // `registration_fence`).
        if conn.device().executes_again {
            let how = match qp.pd().fences() {
                true => "behind a fence",
                false => "at once",
            };
            writeln!(f, "registrations: {how}")?;
        }
    }
    // Each rail and its state. `live`: the rail works. `dead`: the rail does not work. `returning`:
    // the rail works again, but does not have its share of connections yet. `doubted`: the rail is
    // being probed, for example because a connection ended without a known reason, or because the
    // server is silent (iWARP). `gone`: the rail is no longer in the administrator's tables. `this
    // one` marks the rail of this connection.
    link.each_rail(|view, is_ours| {
        let rail = Over(&view.rail);
        writeln!(
            f,
            "rail: {rail}: {} for {}, {} connections{}",
            view.standing.name(),
            Seconds(now().since(view.since)),
            view.load,
            if is_ours { ", this one" } else { "" }
        )
    })?;
    // The last event of each type from the device or its port.
    for told in link.services().devices().snapshot().iter() {
        let (what, ago) = (told.event.name(), Seconds(now().since(told.at)));
        writeln!(f, "device event: {what}, {ago} ago")?;
    }
    link.machine().with_conn(|conn| {
        // The last eight connections that ended, newest first, with the cause as in the log.
        for lost in conn.history().iter() {
            writeln!(
                f,
                "disconnect: epoch {}, {}, after {} ms{}",
                lost.epoch.raw(),
                lost.cause.name(),
                lost.lasted.get(),
                Details(lost)
            )?;
        }
        Ok(())
    })
}

fn yes_or_no(is: bool) -> &'static str {
    if is {
        "yes"
    } else {
        "no"
    }
}

/// Returns the number of existing regions, and the number of regions that no call uses. While calls
/// are in progress, the two numbers may be inconsistent.
fn usage(xprt: &Xprt<Rdma>, conn: &Connection) -> (usize, usize) {
    let (made, free) = conn.regions().usage();
    let kept: usize = xprt
        .slots()
        .map(|slot| slot.driver_data().kept(conn.epoch()))
        .sum();
    (made, free + kept)
}

fn show_counters(shown: &Arc<Shown>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counters = shown.link.services().counters();
    let in_use = shown.link.current().map_or(0, |qp| {
        let (made, free) = usage(&shown.xprt, qp.handler());
        made.saturating_sub(free)
    });
    let (agreed, unannounced) = moved(&shown.xprt).invalidations();
    for counter in Counter::ALL {
        let value = match counter {
            Counter::MrsInUse => in_use as u64,
            Counter::Reminv => agreed,
            Counter::ReminvUnannounced => unannounced,
            _ => counters.unusual(*counter),
        };
        writeln!(f, "{}: {value}", counter.name())?;
    }
    let ordinary = |what| counters.ordinary(what);
    // Requests that the server sent to this host. Such requests are not a fault.
    writeln!(f, "callbacks: {}", ordinary(Ordinary::Callbacks))?;
    // Replies to requests that were given up, or that are about to be sent again. Such replies are
    // not a fault.
    writeln!(f, "late_replies: {}", ordinary(Ordinary::LateReplies))?;
    // Number of healthy connections that moved to another rail.
    writeln!(f, "rail_moves: {}", ordinary(Ordinary::RailMoves))?;
    // Number of attempts and connections that ended because their rail died while another rail was
    // alive.
    writeln!(f, "rail_failovers: {}", ordinary(Ordinary::RailFailovers))?;
    // Number of times that a sender found no free region and waited. A few such waits are normal
    // when the load rises.
    writeln!(f, "no_region: {}", ordinary(Ordinary::NoRegion))?;
    // Number of times that a sender found the send queue full and waited.
    writeln!(f, "send_queue_full: {}", ordinary(Ordinary::SendQueueFull))
}

fn show_latency(shown: &Arc<Shown>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counters = shown.link.services().counters();
    latency::write_histogram(
        f,
        Stage::ALL.into_iter().map(|stage| (stage.name(), stage)),
        (0..BUCKETS).map(below_us),
        |stage, bucket| counters.latency(stage, bucket),
    )
}

fn write_disconnect(shown: &Arc<Shown>, reader: &mut UserSliceReader) -> Result {
    match read_switch(reader)? {
        true => {
            shown.link.force(&shown.xprt);
            Ok(())
        }
        false => Err(EINVAL),
    }
}
