// SPDX-License-Identifier: GPL-2.0

//! The steps of one RPC: sending, completion, invalidation, abandonment.

mod callback;
mod complete;
mod discard;
mod fast_path;
mod invalidate;
mod late_reply;
mod map;
mod receive;
mod reclaim;
mod refuse;
mod request;
mod send;
mod sending;
mod shape;
mod slow_path;
mod unsent;
mod version_probe;

pub(crate) use self::{
    callback::send_callback_reply,
    invalidate::revoke,
    map::collect_idle,
    reclaim::reclaim,
    request::Request,
    send::send_call,
    shape::{
        check,
        SMALL_REGION, //
    },
};
