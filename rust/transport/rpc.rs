// SPDX-License-Identifier: GPL-2.0

//! One RPC, in the order in which it happens.

pub(crate) mod callback;
pub(crate) mod complete;
pub(crate) mod discard;
pub(crate) mod general;
pub(crate) mod invalidate;
pub(crate) mod late;
pub(crate) mod map;
pub(crate) mod one;
pub(crate) mod receive;
pub(crate) mod refuse;
pub(crate) mod request;
pub(crate) mod send;
pub(crate) mod shape;
