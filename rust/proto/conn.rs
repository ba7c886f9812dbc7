// SPDX-License-Identifier: GPL-2.0

//! The connections of a transport, from the first attempt to the end.
//!
//! [`Conn`] is the state machine of a transport's connections. It takes events, and returns actions
//! and deadlines. The documentation of [`Conn`] describes how the driver uses the state machine.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `mailbox` | where the driver delivers events |
//! | `api` | the state machine as the driver sees it |
//! | `machine` | the transitions between the states |
//! | `state`, `attempt`, `established` | the states |
//! | `peer` | what is known of the peer from one connection to the next |
//! | `backoff`, `inline_fallback`, `history` | parts of the knowledge in `peer` |
//! | `keepalive`, `unserved` | detection of a dead peer, and of a hung server on a live host |
//! | `outage` | log messages about failed attempts |
//! | `event`, `action`, `config` | input, output and settings of the state machine |
//! | `sizes` | sizes of a connection's queues |
//! | `cause`, `failure_details` | why a connection ended |
//! | `queue` | a queue for events and actions that wait |
//!
//! # Rules kept here
//!
//! * RPC tasks get only errors that the RPC client retries, except on a first mount
//!   ([`ConnectError::error`]).
//! * A new attempt waits for the back-off, which only a reply resets (MAL-152).
//! * A connection that carried a reply is replaced at once if it lasted for five seconds, or if
//!   this host ended it: see "At once or later".
//! * After two quick losses, each after the first large Send, the next connections send at most
//!   1024 bytes in a message (CM-24).
//! * While a backchannel is bound, an idle connection is not closed (BC-16).
//! * A silent peer is probed. A dead peer is disconnected. A slow peer keeps its connection.
//! * A connection ends if several RPC timers fire and the server sends no message in this time.
//!   Each such end doubles the number of timers that must fire on the next connection.
//! * With several rails, silence is noticed sooner and delays stay short. After one rail fails, the
//!   first attempt over a rail that is not known to fail starts at once ([`RailFacts`]).
//! * An RPC timer counts only against the connection over which its call was sent.
//!
//! # At once or later
//!
//! Every user of the mount waits while there is no connection. Yet attempts are delayed, for two
//! reasons:
//!
//! * A delay reduces the load on a peer that cannot keep connections.
//! * A delay spreads the reconnects of the clients after a server restart.
//!
//! | The connection                                  | Next attempt                            |
//! |-------------------------------------------------|-----------------------------------------|
//! | was healthy and closed ([`Cause::is_clean`])    | at once                                 |
//! | had carried a reply and lasted for five seconds | at once, or within a quarter of a       |
//! |                                                 | second if the peer closed it            |
//! | had carried a reply, and an action of this host | at once: peer and fabric work, and each |
//! | ended it (see below)                            | such end needs another action           |
//! | had carried a reply                             | after the first delay of the back-off   |
//! | never carried a reply                           | after the back-off, which keeps growing |
//!
//! If the peer ends a connection that lasted less than five seconds, the next attempt is delayed.
//! The peer has a reason to end the connection, and a delay of half a second costs little. An
//! immediate attempt may even do harm. For example, knfsd accepts connections on a device that is
//! being removed, and the removal then waits for these connections for ever.
//!
//! Three actions of this host end connections:
//!
//! * It retransmits a call.
//! * It sends a call that leaves the number of credits unknown.
//! * It revokes the memory of a call whose process was killed, and the server then writes to that
//!   memory.
//!
//! In the last case the server sees a refused write, and this host sees a flushed queue pair or the
//! peer's disconnect. This looks like a failure of the peer. So only the time decides: a loss
//! within five seconds after memory was revoked counts as a consequence of the revocation
//! ([`Cause::GivenUpCall`]). A server cannot use this rule to drop connections at will, because
//! each such loss needs a user who kills a process.

mod action;
mod api;
mod attempt;
mod backoff;
mod cause;
mod config;
mod device;
mod established;
mod event;
mod failure_details;
mod haste;
mod history;
mod inline_fallback;
mod keepalive;
mod machine;
mod mailbox;
mod outage;
mod peer;
mod queue;
mod sizes;
mod state;
mod unserved;

pub use self::{
    action::{
        Action,
        Phase, //
    },
    api::Conn,
    backoff::{
        Backoff,
        BackoffConfig, //
    },
    cause::{
        Blame,
        Cause,
        ConnectError, //
    },
    config::{
        Config,
        RailFacts,
        LEAST_LIMIT,
        MIN_CONNECT_TIMEOUT, //
    },
    device::{
        DeviceEvent,
        DeviceLog, //
    },
    event::{
        Accepted,
        AddrFault,
        CmEvent,
        Epoch,
        Event,
        LocalFault, //
    },
    failure_details::{
        FailedWork,
        Opcode,
        QpEvent,
        Seen, //
    },
    haste::Haste,
    history::{
        Disconnect,
        Failure,
        History,
        HISTORY, //
    },
    inline_fallback::InlineFallback,
    keepalive::{
        Activity,
        Keepalive,
        KeepaliveConfig,
        Verdict,
        SUSPICION, //
    },
    mailbox::{
        Actions,
        Mailbox, //
    },
    outage::{
        Outage,
        Report, //
    },
    sizes::{
        max_payload,
        pages_of,
        QueueDemand,
        QueueLimits,
        QueueSizes,
        MAX_PAYLOAD, //
    },
    unserved::RpcTimer,
};
