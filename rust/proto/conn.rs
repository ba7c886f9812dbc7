// SPDX-License-Identifier: GPL-2.0

//! The life of a transport's connections: events in, actions out, deadlines returned.
//!
//! [`Conn`] is the machine; its documentation says how to drive it.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `mailbox` | where events are handed in, whoever drives the machine |
//! | `drive` | the machine as the driver sees it |
//! | `machine` | what leads from one state to the next |
//! | `state`, `attempt`, `up` | the states |
//! | `peer` | what is known of the peer from one connection to the next |
//! | `backoff`, `inline_fallback`, `history` | parts of that |
//! | `keepalive` | finding a dead peer |
//! | `outage` | what the log tells of failed attempts |
//! | `event`, `action`, `config` | what goes in, what comes out, what is decided beforehand |
//! | `sizes` | how large the queues of a connection are |
//! | `cause`, `seen` | why it ended |
//! | `queue` | what waits its turn |
//!
//! # Rules kept here
//!
//! * Only errors that the RPC client retries leave, except on a first mount ([`ConnectError::error`]).
//! * A new attempt waits for the back-off, which only a reply resets (MAL-152).
//! * A connection that was of use gets a successor at once if it lasted, or if we ended it: see
//!   below.
//! * Two quick losses after the first large Send make the next connections use 1024 bytes (CM-24).
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
mod attempt;
mod backoff;
mod cause;
mod config;
mod drive;
mod event;
mod history;
mod inline_fallback;
mod keepalive;
mod machine;
mod mailbox;
mod outage;
mod peer;
mod queue;
mod seen;
mod sizes;
mod state;
mod up;

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
    drive::Conn,
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
        Keepalive,
        KeepaliveConfig,
        Verdict, //
    },
    mailbox::{
        Actions,
        Mailbox, //
    },
    outage::{
        Outage,
        Report, //
    },
    seen::{
        QpEvent,
        Seen,
        Side, //
    },
    sizes::{
        max_payload,
        QueueDemand,
        QueueLimits,
        QueueSizes,
        MAX_PAYLOAD, //
    },
};
