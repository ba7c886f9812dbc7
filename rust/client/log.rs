// SPDX-License-Identifier: GPL-2.0

//! Formats log lines: names of connections, details of disconnects, failed attempts.

use crate::driver::Rdma;
use core::fmt::{
    self,
    Display,
    Formatter, //
};
use core::net::SocketAddr;
use kernel::prelude::*;
use xprtrdma_proto::{
    conn::{
        ConnectError,
        Disconnect,
        FailedWork,
        Report, //
    },
    rail::{
        table::Pick,
        Rail, //
    },
    time::Millis,
    wc::WcStatus, //
};
use xprtrdma_rdma::device::DeviceInfo;
use xprtrdma_sunrpc::{
    util::Show,
    xprt::Xprt, //
};

/// The name of a transport in log lines: its name in sysfs, and the server's address.
pub(crate) struct Named<'a>(pub(crate) &'a Xprt<Rdma>);

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "xprt-{}-rdma: ", self.0.id())?;
        match self.0.peer() {
            Some(peer) => peer.fmt(f),
            None => f.write_str("?"),
        }
    }
}

/// A work request that failed. Example:
/// `SEND: peer does not acknowledge, status 12, vendor error 0x81`.
struct Work(FailedWork);

impl Display for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let FailedWork {
            opcode,
            status,
            vendor_err,
        } = self.0;
        let class = self.0.class();
        write!(f, "{}: {}", opcode.name(), class.name())?;
        if class == WcStatus::Flushed {
            return Ok(());
        }
        write!(f, ", status {status}, vendor error {vendor_err:#x}")
    }
}

/// The reason why a connection over rxe may fail if registrations are not fenced: see
/// [`xprtrdma_rdma::device`].
const REPEATED: &str = "the device has executed a registration again";

/// The details of a disconnect, in parentheses; empty if there are none.
pub(crate) struct Details<'a>(pub(crate) &'a Disconnect);

impl Display for Details<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seen = &self.0.seen;
        let reason = seen.reason.filter(|_| seen.reason != seen.first);
        let mut open = " (";
        for work in [seen.first, reason].into_iter().flatten() {
            write!(f, "{open}{}", Work(work))?;
            open = "; ";
        }
        if seen.lacks_a_reason() {
            write!(f, "{open}no work request told of an error")?;
        }
        if seen.repeated {
            write!(f, "{open}{REPEATED}")?;
            open = "; ";
        }
        let parts = [
            seen.event.map(|event| ("queue pair", event.name())),
            self.0.cm.map(|event| ("connection manager", event.name())),
        ];
        for (who, what) in parts.into_iter().flatten() {
            write!(f, "{open}{who}: {what}")?;
            open = "; ";
        }
        if let Some((event, before)) = seen.device {
            let (what, before) = (event.name(), Seconds(before));
            write!(f, "{open}device: {what} {before} before")?;
            open = "; ";
        }
        if open == "; " {
            write!(f, ")")?;
        }
        Ok(())
    }
}

/// The number of attempts in a row that failed, and their total time. The text is empty for the
/// first attempt.
struct Repeated(u32, Millis);

impl Display for Repeated {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 | 1 => Ok(()),
            n => write!(f, "; attempt {n} in {}", Seconds(self.1)),
        }
    }
}

/// The number of attempts that failed before this connection was made, and their total time.
pub(crate) struct Again(pub(crate) u32, pub(crate) Millis);

impl Display for Again {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => write!(f, " after a failed attempt, {}", Seconds(self.1)),
            n => write!(f, " after {n} failed attempts, {}", Seconds(self.1)),
        }
    }
}

/// The reason why the server is not asked to invalidate regions; empty if it is asked.
pub(crate) struct Uninvalidated(pub(crate) Option<&'static str>);

impl Display for Uninvalidated {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(why) => write!(f, ", no remote invalidation: {why}"),
        }
    }
}

/// A rail in log lines. Example: `192.0.2.2 (rxe0/1) to 192.0.2.1`.
pub(crate) struct Over<'a>(pub(crate) &'a Rail);

impl Display for Over<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Rail {
            local,
            server,
            device,
            port,
        } = self.0;
        write!(f, "{local} ({}/{port}) to {server}", device.as_str())
    }
}

/// An entry of the setting `rails` (an address or a device), as the administrator wrote it.
pub(crate) struct Entry(pub(crate) Pick);

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Pick::Addr(addr) => write!(f, "{addr}"),
            Pick::Device(name, None) => f.write_str(name.as_str()),
            Pick::Device(name, Some(port)) => write!(f, "{}/{port}", name.as_str()),
        }
    }
}

/// The server's address on this rail, if it differs from the address of the mount.
pub(crate) struct To(pub(crate) Option<SocketAddr>, pub(crate) Option<Rail>);

impl Display for To {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0, &self.1) {
            (Some(peer), Some(rail)) if peer.ip() != rail.server => {
                write!(f, " to {}", rail.server)
            }
            _ => Ok(()),
        }
    }
}

/// The rail over which an attempt was made. The text is empty if rails are not configured.
struct On(Option<Rail>);

impl Display for On {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(rail) => write!(f, " from {}", Over(rail)),
            None => Ok(()),
        }
    }
}

/// The reason why an attempt failed. The number is the errno if this host refused a step, otherwise
/// zero.
pub(crate) struct Reason(pub(crate) ConnectError, pub(crate) i32);

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())?;
        match self.1 {
            0 => Ok(()),
            errno => write!(f, ", error {errno}"),
        }
    }
}

/// A time span, shown in seconds with one decimal.
pub(crate) struct Seconds(pub(crate) Millis);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ms = self.0.get();
        write!(f, "{}.{} s", ms / 1000, ms / 100 % 10)
    }
}

/// Logs a failed attempt, unless `report` suppresses it. `lasted` is the duration of the attempt.
/// `device` is the attempt's device, or `None` if the address was not resolved. `rail` is the
/// attempt's rail, or `None` if rails are not configured.
pub(crate) fn failure(
    xprt: &Xprt<Rdma>,
    reason: Reason,
    lasted: Millis,
    report: &Report,
    device: Option<DeviceInfo>,
    rail: Option<Rail>,
) {
    if report.tell {
        // LOG: An attempt failed (see the reasons below). A hard mount tries again. If rails are
        // configured, another live rail is tried without delay. Repeated failures for the same
        // reason are logged less and less often, but at least once an hour.
        pr_warn!(
            "{} cannot be connected{}: {} (after {}{})\n",
            Show(&Named(xprt)),
            Show(&On(rail)),
            Show(&reason),
            Show(&Seconds(lasted)),
            Show(&Repeated(report.attempts, report.since)),
        );
    }
    if let (true, Some(device)) = (report.suspect_device, device) {
        // LOG: Two attempts in a row, of at least 15 seconds each, got no answer to the connection
        // request. Check this host's device. If Soft-RoCE (rxe) sends while the link is down, its
        // management queue pair breaks permanently. To repair it, run `rdma link delete rxe0`, then
        // `rdma link add rxe0 type rxe netdev eth0`.
        pr_warn!(
            "{} device {} gets no answers, though its port {} is active: if it gets none from \
             other hosts either, restart it (rxe whose link was down: \
             'rdma link delete', 'rdma link add')\n",
            Show(&Named(xprt)),
            device.name(),
            device.port,
        );
    }
}
