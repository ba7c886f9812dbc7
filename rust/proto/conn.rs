// SPDX-License-Identifier: GPL-2.0

//! The life of a transport's connections: events in, actions out, deadlines returned.
//!
//! # How to drive it
//!
//! [`Conn`] sits behind one lock of the driver, in a [`Desk`] that parts the events between a worker and
//! the others. After **every** [`Conn::handle`] the driver takes the actions with [`Conn::poll_action`]
//! until there are none, performs them in that order outside the lock, and re-arms its timer from
//! [`Conn::deadline`]; when the timer fires it hands in [`Event::Tick`]. Nothing else changes the machine.
//!
//! One attempt runs in a worker that may sleep:
//!
//! | The machine asks                    | The driver answers                                             |
//! |-------------------------------------|----------------------------------------------------------------|
//! | (the RPC layer wants a connection)  | [`Event::Start`]                                               |
//! | [`Action::ResolveAddr`]             | [`CmEvent::AddrResolved`], [`CmEvent::AddrError`]              |
//! | [`Action::ResolveRoute`]            | [`CmEvent::RouteResolved`], [`CmEvent::RouteError`]            |
//! | [`Action::CreateQp`]                | [`Event::QpCreated`] (Receives posted), [`Event::LocalFault`]  |
//! | [`Action::Connect`]                 | [`CmEvent::Established`], [`CmEvent::Rejected`], ...           |
//! | [`Action::SendVersionProbe`]        | [`Event::VersionAnswer`]; only if version 2 is allowed         |
//! | [`Action::Established`]             | tells the RPC layer; the attempt is over                       |
//! | [`Action::TearDown`]                | releases everything of the attempt, [`Event::TornDown`]        |
//! | [`Action::Fail`]                    | wakes the RPC tasks with the error; the attempt is over        |
//!
//! Whatever happens, an attempt ends with `Established` or with `TearDown` and then `Fail`, and its end is
//! reached, or a tear-down asked for, no later than its deadline.
//!
//! An established connection ends with exactly one [`Action::Disconnect`] that carries the cause. The driver
//! then stops using the queue pair, drains it, releases it and reports [`Event::TornDown`]. Until that
//! report no new attempt starts, so two connections never exist at once.
//!
//! # Epochs and cookies
//!
//! Every attempt gets a new [`Epoch`]. Events from a connection carry the epoch it was created under; an
//! event of another epoch is stale and changes nothing. [`Conn::cookie`] is for `xprt->connect_cookie`: it
//! changes at every establishment and at every loss, and never otherwise.
//!
//! # Rules kept here
//!
//! * Only errors that the RPC client retries leave, except on a first mount ([`ConnectError::error`]).
//! * A new attempt waits for the back-off, which only a reply resets (MAL-152).
//! * A connection that was of use gets a successor at once if it lasted, or if we ended it: see
//!   below.
//! * Two quick losses after the first large Send make the next connections use 1024 octets (CM-24).
//! * No idle disconnect while a backchannel is bound (BC-16).
//! * A silent peer is probed, a dead one disconnected, a slow one left alone.
//! * An RPC timer counts only against the connection its call was sent on.
//!
//! # At once or later
//!
//! While there is no connection every user of the mount waits, so a delay must be good for
//! something: it spares a peer that cannot keep connections, and it spreads the clients of a server
//! that comes back.
//!
//! | The connection                                    | Next attempt                                |
//! |---------------------------------------------------|---------------------------------------------|
//! | was closed without need ([`Cause::is_clean`])     | at once                                     |
//! | had carried a reply and lasted for five seconds   | at once                                     |
//! | had carried a reply, and we know what we did      | at once: peer and fabric are well, and each |
//! |                                                   | such end needs another deed of ours         |
//! | had carried a reply                               | after the first delay of the back-off       |
//! | never carried a reply                             | after the back-off, ever more slowly        |
//!
//! A peer that ends a young connection has its reason, and half a second costs little: knfsd accepts connections
//! on a device while that is being removed, and the removal then waits for them for ever.
//!
//! What we do that ends connections: a call is sent again, a call leaves the credits unknown, or memory was
//! taken back that the server writes to, because the call's process was killed. The server sees its write
//! refused, and we see a queue pair that is flushed, or the peer's disconnect. Both are told apart from a
//! failure of the peer by the time only: within five seconds after memory was revoked they are taken for
//! its consequence ([`Cause::GivenUpCall`]). A server that uses this to drop connections needs a user who
//! kills processes for each of them.

mod action;
mod backoff;
mod cause;
mod config;
mod desk;
mod event;
mod history;
mod inline_fallback;
mod keepalive;
mod machine;
mod outage;
mod queue;
mod seen;

pub use self::{
    action::{
        Action,
        Phase, //
    },
    backoff::{
        Backoff,
        BackoffConfig, //
    },
    cause::{
        Cause,
        ConnectError, //
    },
    config::{
        Config,
        MIN_CONNECT_TIMEOUT, //
    },
    desk::{
        Actions,
        Desk, //
    },
    event::{
        Accepted,
        AddrFault,
        CmEvent,
        Epoch,
        Event,
        LocalFault, //
    },
    history::{
        Disconnect,
        Failure,
        History,
        HISTORY, //
    },
    inline_fallback::InlineFallback,
    keepalive::{
        Activity,
        KeepAlive,
        KeepAliveConfig,
        Verdict, //
    },
    machine::Conn,
    outage::{
        Outage,
        Report, //
    },
    seen::{
        QpEvent,
        Seen,
        Side, //
    },
};
