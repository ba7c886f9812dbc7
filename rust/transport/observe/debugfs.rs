// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs: a directory for each transport.
//!
//! `xprtrdma_rs/<number of the transport>/`
//!
//! and `xprtrdma_rs/parameters`: the values for connections and mounts that are made now.
//!
//! | File | Content |
//! | --- | --- |
//! | `state` | peer, connection, sizes, credits, queues, regions, last disconnects |
//! | `counters` | everything unusual, by name |
//! | `disconnect` | writing `1` ends the connection |

use crate::{
    connection::Connection,
    counters::Ordinary,
    driver::Rdma,
    link::Link,
    log::{
        Details,
        Seconds, //
    },
    machine::now,
    observe::moved,
    params, //
};
use core::fmt;
use kernel::{
    debugfs::{
        File,
        Scope, //
    },
    prelude::*,
    str::CString,
    sync::Arc,
    uaccess::UserSliceReader, //
};
use xprtrdma_proto::{
    v2::negotiate::Known,
    Counter, //
};
use xprtrdma_sunrpc::{
    common::Common,
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// The objects that the files of one transport show.
pub(crate) struct Shown {
    xprt: BackRef<Rdma>,
    link: Arc<Link>,
}

/// The files of one transport. Dropping them waits for readers and writers.
pub(crate) type Files = Scope<Shown>;

/// Makes the files of a transport. Sleeps.
pub(crate) fn files(xprt: &Xprt<Rdma>, link: &Arc<Link>) -> Result<Pin<KBox<Files>>> {
    let name = CString::try_from_fmt(fmt!("{}", xprt.id()))?;
    let shown = Shown {
        xprt: xprt.back_ref(),
        link: link.clone(),
    };
    let scope = xprt.common().debugfs().scope(shown, &name, |shown, dir| {
        dir.read_callback_file(c"state", shown, &show_state);
        dir.read_callback_file(c"counters", shown, &show_counters);
        dir.write_only_callback_file(c"disconnect", shown, &write_disconnect);
    });
    KBox::pin_init(scope, GFP_KERNEL)
}

/// The file of the parameters. Dropping it waits for readers.
pub(crate) type Parameters = File<()>;

/// Makes the file of the parameters. Sleeps.
pub(crate) fn parameters(common: &Common) -> Result<Pin<KBox<Parameters>>> {
    let dir = common.debugfs();
    let file = dir.read_callback_file(c"parameters", (), &show_parameters);
    KBox::pin_init(file, GFP_KERNEL)
}

fn show_parameters(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    params::show(f)
}

fn show_state(shown: &Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (xprt, link) = (&shown.xprt, &shown.link);
    writeln!(f, "transport: xprt-{}-rdma", xprt.id())?;
    writeln!(f, "netns: {}", xprt.net().number())?;
    match xprt.peer() {
        Some(peer) => writeln!(f, "peer: {peer}")?,
        None => writeln!(f, "peer: unknown")?,
    }
    if let Some(local) = link.local_addr() {
        writeln!(f, "local: {local}")?;
    }
    writeln!(f, "slots: {}", xprt.slots().count())?;
    link.machine().with_conn(|conn| {
        writeln!(f, "phase: {}", conn.phase().name())?;
        writeln!(f, "epoch: {}", conn.epoch().raw())?;
        writeln!(f, "failures in a row: {}", conn.failures())?;
        if let Some(last) = conn.last_failure() {
            let ago = now().since(last.at);
            let (reason, lasted) = (last.reason.name(), Seconds(last.lasted));
            writeln!(
                f,
                "last failure: {reason} (after {lasted}), {} ago",
                Seconds(ago)
            )?;
        }
        writeln!(
            f,
            "version wanted: {}",
            params::number_of(conn.version_policy())
        )?;
        match conn.version_known() {
            Known::Nothing => writeln!(f, "peer's version 2: unknown")?,
            Known::Doubtful(since) => {
                let ago = Seconds(now().since(since));
                writeln!(f, "peer's version 2: doubtful, {ago} ago")?;
            }
            Known::Lacking => writeln!(f, "peer's version 2: refused")?,
        }
        match conn.idle_timeout() {
            Some(idle) => writeln!(f, "idle timeout: {} s", idle.get() / 1000),
            None => writeln!(f, "idle timeout: never"),
        }
    })?;
    writeln!(f, "message buffers: {} bytes", xprt.buffered())?;
    if let Some(qp) = link.current() {
        let conn = qp.handler();
        let thresholds = conn.thresholds();
        let (bytes, wrs) = qp.send_occupancy();
        let (made, free) = usage(xprt, conn);
        let credits = conn.credits();
        writeln!(
            f,
            "device: {}, port {}",
            conn.device().name(),
            conn.device().port
        )?;
        writeln!(f, "version: {}", conn.version().number())?;
        writeln!(
            f,
            "inline: {} out, {} in",
            thresholds.call, thresholds.reply
        )?;
        if qp.pd().believes_invalidations() {
            // We announce support if the device proves invalidations. Servers go by that alone.
            let (agreed, unannounced) = moved(xprt).invalidations();
            writeln!(
                f,
                "remote invalidation: announced by the server: {}; used by it: {}",
                yes_or_no(thresholds.remote_invalidation),
                yes_or_no(agreed + unannounced > 0)
            )?;
        } else {
            writeln!(
                f,
                "remote invalidation: not asked for, this device does not prove it"
            )?;
        }
        writeln!(
            f,
            "credits: {} requested, {} granted, {} with calls given up",
            credits.request().0,
            credits.granted(),
            credits.abandoned()
        )?;
        writeln!(f, "send queue: {wrs} work requests, {bytes} bytes")?;
        writeln!(f, "receives posted: {}", qp.receives_posted())?;
        writeln!(
            f,
            "regions: {made} made, {free} free, {} pages each",
            conn.regions().pages()
        )?;
    }
    for told in link.services().devices().snapshot().iter() {
        let (what, ago) = (told.event.name(), Seconds(now().since(told.at)));
        writeln!(f, "device event: {what}, {ago} ago")?;
    }
    link.machine().with_conn(|conn| {
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

/// Regions that exist and that no call uses. While calls come and go the one may not fit the other.
fn usage(xprt: &Xprt<Rdma>, conn: &Connection) -> (usize, usize) {
    let (made, free) = conn.regions().usage();
    let kept: usize = xprt
        .slots()
        .map(|slot| slot.driver_data().kept(conn.epoch()))
        .sum();
    (made, free + kept)
}

fn show_counters(shown: &Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    writeln!(f, "callbacks: {}", ordinary(Ordinary::Callbacks))?;
    writeln!(f, "late_replies: {}", ordinary(Ordinary::LateReplies))?;
    writeln!(f, "no_region: {}", ordinary(Ordinary::NoRegion))?;
    writeln!(f, "send_queue_full: {}", ordinary(Ordinary::SendQueueFull))
}

fn write_disconnect(shown: &Shown, reader: &mut UserSliceReader) -> Result {
    let mut text = [0u8; 2];
    let len = reader.len().min(text.len());
    let text = text.get_mut(..len).ok_or(EINVAL)?;
    reader.read_slice(text)?;
    match text {
        [b'1'] | [b'1', b'\n'] => {
            shown.link.force(&shown.xprt);
            Ok(())
        }
        _ => Err(EINVAL),
    }
}
