// SPDX-License-Identifier: GPL-2.0

//! What an administrator can see and do in debugfs: a directory for each transport.
//!
//! `xprtrdma_rs/<number of the transport>/`
//!
//! and `xprtrdma_rs/parameters`: what holds for connections and mounts that are made now.
//!
//! | File | Content |
//! | --- | --- |
//! | `state` | peer, connection, sizes, credits, queues, regions, last disconnects |
//! | `counters` | everything unusual, by name |
//! | `disconnect` | writing `1` ends the connection |

use crate::{
    client::force_disconnect,
    connection::Connection,
    counters::Tally,
    driver::Rdma,
    link::now,
    log::{
        Details,
        Seconds, //
    },
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
    uaccess::UserSliceReader, //
};
use xprtrdma_proto::{
    conn::DeviceLog,
    Counter, //
};
use xprtrdma_sunrpc::{
    common::Common,
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// The files of one transport. Dropping them waits for readers and writers.
pub(crate) type Files = Scope<BackRef<Rdma>>;

/// Makes the files of a transport. Sleeps.
pub(crate) fn files(xprt: &Xprt<Rdma>) -> Result<Pin<KBox<Files>>> {
    let name = CString::try_from_fmt(fmt!("{}", xprt.id()))?;
    let back = xprt.back_ref();
    let scope = xprt.common().debugfs().scope(back, &name, |xprt, dir| {
        dir.read_callback_file(c"state", xprt, &show_state);
        dir.read_callback_file(c"counters", xprt, &show_counters);
        dir.write_only_callback_file(c"disconnect", xprt, &write_disconnect);
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

fn show_state(xprt: &BackRef<Rdma>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let client = xprt.data();
    writeln!(f, "transport: xprt-{}-rdma", xprt.id())?;
    writeln!(f, "netns: {}", xprt.net().number())?;
    match xprt.peer() {
        Some(peer) => writeln!(f, "peer: {peer}")?,
        None => writeln!(f, "peer: unknown")?,
    }
    let local = *client.local.lock();
    if let Some(local) = local {
        writeln!(f, "local: {local}")?;
    }
    writeln!(f, "slots: {}", xprt.slots().count())?;
    client.link.with_conn(|conn| {
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
        match conn.idle_timeout() {
            Some(idle) => writeln!(f, "idle timeout: {} s", idle.get() / 1000),
            None => writeln!(f, "idle timeout: never"),
        }
    })?;
    writeln!(f, "message buffers: {} bytes", xprt.buffered())?;
    let current = client.current.lock().clone();
    if let Some(conn) = current {
        let endpoint = conn.handler();
        let thresholds = endpoint.thresholds();
        let (bytes, wrs) = conn.send_occupancy();
        let (made, free) = usage(xprt, endpoint);
        let credits = *endpoint.state.credits.lock();
        writeln!(
            f,
            "device: {}, port {}",
            endpoint.device.name(),
            endpoint.device.port
        )?;
        writeln!(
            f,
            "inline: {} out, {} in",
            thresholds.call, thresholds.reply
        )?;
        if conn.pd().believes_invalidations() {
            // What is ours to announce we do, and servers go by that alone.
            let moved = Tally::of(xprt);
            writeln!(
                f,
                "remote invalidation: announced by the server: {}; used by it: {}",
                yes_or_no(thresholds.remote_invalidation),
                yes_or_no(moved.invalidated + moved.invalidated_unannounced > 0)
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
        writeln!(f, "receives posted: {}", conn.receives_posted())?;
        writeln!(
            f,
            "regions: {made} made, {free} free, {} pages each",
            endpoint.regions.pages()
        )?;
    }
    let told = client.link.with_told(DeviceLog::clone);
    for told in told.iter() {
        let (what, ago) = (told.event.name(), Seconds(now().since(told.at)));
        writeln!(f, "device event: {what}, {ago} ago")?;
    }
    client.link.with_conn(|conn| {
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
pub(crate) fn usage(xprt: &Xprt<Rdma>, endpoint: &Connection) -> (usize, usize) {
    let (made, free) = endpoint.regions.usage();
    let kept: usize = xprt
        .slots()
        .map(|slot| {
            let state = slot.call().state.lock();
            if state.epoch == endpoint.epoch {
                state.idle.len()
            } else {
                0
            }
        })
        .sum();
    (made, free + kept)
}

fn show_counters(xprt: &BackRef<Rdma>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let client = xprt.data();
    let stats = &client.stats;
    let current = client.current.lock().clone();
    let in_use = current.map_or(0, |conn| {
        let (made, free) = usage(xprt, conn.handler());
        made.saturating_sub(free)
    });
    let moved = Tally::of(xprt);
    for counter in Counter::ALL {
        let value = match counter {
            Counter::MrsInUse => in_use as u64,
            Counter::Reminv => moved.invalidated,
            Counter::ReminvUnannounced => moved.invalidated_unannounced,
            _ => stats.unusual(*counter),
        };
        writeln!(f, "{}: {value}", counter.name())?;
    }
    writeln!(f, "callbacks: {}", stats.callbacks.get())?;
    writeln!(f, "late_replies: {}", stats.late_replies.get())?;
    writeln!(f, "no_region: {}", stats.no_region.get())?;
    writeln!(f, "send_queue_full: {}", stats.send_queue_full.get())
}

fn write_disconnect(xprt: &BackRef<Rdma>, reader: &mut UserSliceReader) -> Result {
    let mut text = [0u8; 2];
    let len = reader.len().min(text.len());
    let text = text.get_mut(..len).ok_or(EINVAL)?;
    reader.read_slice(text)?;
    match text {
        [b'1'] | [b'1', b'\n'] => {
            force_disconnect(xprt);
            Ok(())
        }
        _ => Err(EINVAL),
    }
}
