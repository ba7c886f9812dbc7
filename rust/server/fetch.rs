// SPDX-License-Identifier: GPL-2.0

//! A call that waits for memory or for its RDMA Reads, and the assembly of its message.

use crate::{
    call::{
        fill_in,
        Call,
        Fetched,
        Message, //
    },
    latency::Since,
    memory::Counted, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_proto::responder::{
    admit::{
        Admitted,
        Ready, //
    },
    call::{
        self,
        Parked, //
    },
    grant::Ticket,
    refusal::Refusal,
    stream::{
        Assembly,
        Fill, //
    }, //
};
use xprtrdma_rdma::{
    pages::Pages,
    transfer::Transfer, //
};
use xprtrdma_svc::inbox::Place;

/// A call that waits for memory or for its RDMA Reads.
pub(crate) enum Reading {
    /// The call was admitted, see [`Stage::Admitted`].
    Admitted(KBox<Unread>),
    /// The Reads fetch a single chunk, which is inserted into the received message. Everything else
    /// of the call is complete.
    Split {
        call: Fetched,
        /// Offset in the RPC message at which the chunk is inserted.
        at: u32,
        fill: Option<Fill>,
    },
}

/// A call that was admitted. When its Reads have completed, the message of the call must be
/// assembled and checked.
pub(crate) struct Unread {
    pub(crate) message: Message,
    pub(crate) parked: Parked<Admitted>,
    pub(crate) ticket: Ticket,
    /// The pages of the call that count towards the memory limits; `None` while too few pages are
    /// free, or if the call is too small to count.
    pub(crate) counted: Option<Counted>,
    pub(crate) since: Since,
}

/// How far the processing of a call has come.
pub(crate) enum Stage {
    /// The call was admitted. When its Reads have completed, the message of the call must be
    /// assembled and checked.
    Admitted(Parked<Admitted>),
    /// The Reads fetch a single chunk. The chunk is inserted into the received message, which has
    /// already been checked.
    Split {
        parked: Parked<Ready>,
        /// Offset in the received message at which the RPC message begins.
        start: usize,
        /// Offset in the RPC message at which the chunk is inserted.
        at: u32,
        /// The bytes after the chunk's data. No Read writes these bytes, so this host fills them
        /// in.
        fill: Option<Fill>,
    },
}

/// A call in the queue of waiting calls.
pub(crate) struct Waiting {
    pub(crate) reading: Reading,
    /// Number of bytes to read from the client. If the number is zero, the call waits only for
    /// memory.
    pub(crate) bytes: u32,
    /// Number of pages of the call that must still be counted towards the memory limits.
    pub(crate) pages: u32,
    /// The transfer with the Reads, if the Reads were prepared and are not posted yet.
    pub(crate) transfer: Option<KBox<Transfer>>,
}

/// A call that has just arrived. Either its Reads are prepared, or the call must wait.
pub(crate) struct Begun {
    pub(crate) stage: Stage,
    pub(crate) counted: Option<Counted>,
    pub(crate) transfer: Option<KBox<Transfer>>,
}

impl Begun {
    /// Returns a call that must wait.
    #[inline]
    pub(crate) fn waiting(call: call::Call<'_, Admitted>) -> Self {
        Self {
            stage: Stage::Admitted(call.park()),
            counted: None,
            transfer: None,
        }
    }
}

/// Why a call cannot be processed.
pub(crate) enum Failed {
    /// The call is refused. The client receives this error.
    Refused(Ticket, Refusal),
    /// The connection must be closed.
    Error(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Stage {
    /// Checks the call as far as possible before its Reads have completed. `len` is the length of
    /// the received message.
    #[inline(always)]
    pub(crate) fn of(call: call::Call<'_, Admitted>, len: usize) -> Result<Self, Refusal> {
        let Assembly::Split { at } = call.assembly() else {
            return Ok(Self::Admitted(call.park()));
        };
        let fill = call.fills().next();
        let start = start(&call, len);
        let parked = call.fetched(&[])?.park();
        Ok(Self::Split {
            parked,
            start,
            at,
            fill,
        })
    }
}

impl Reading {
    /// Creates a call that waits for memory or for its Reads. Drops the call if no memory is
    /// available.
    #[inline(always)]
    pub(crate) fn new(
        message: Message,
        stage: Stage,
        ticket: Ticket,
        counted: Option<Counted>,
        since: Since,
    ) -> Result<Self> {
        match stage {
            Stage::Split {
                parked,
                start,
                at,
                fill,
            } => {
                let call = Call::new(parked, ticket, counted, since);
                let call = Fetched::new(message, start, call)?;
                Ok(Self::Split { call, at, fill })
            }
            Stage::Admitted(parked) => {
                let unread = Unread {
                    message,
                    parked,
                    ticket,
                    counted,
                    since,
                };
                Ok(Self::Admitted(KBox::new(unread, GFP_KERNEL)?))
            }
        }
    }

    /// Returns the pages of the call that count towards the memory limits.
    pub(crate) fn counted(&mut self) -> &mut Option<Counted> {
        match self {
            Self::Admitted(unread) => &mut unread.counted,
            Self::Split { call, .. } => &mut call.call().counted,
        }
    }

    /// Assembles the message of a call that no longer waits for memory or for Reads. `pages` are
    /// the pages that the Reads of the call have filled, or `None` if the call has no Reads. After
    /// an error, calls `give_back` with the number of pages of the call that count towards the
    /// limits.
    #[inline(always)]
    pub(crate) fn finish(
        self,
        pages: Option<Pages>,
        give_back: impl FnOnce(Option<Counted>),
    ) -> Result<Fetched, Failed> {
        match (self, pages) {
            (Self::Split { mut call, at, fill }, Some(mut pages)) => {
                if let Some(fill) = fill {
                    if let Err(error) = fill_in(&mut pages, &[], fill) {
                        drop(pages);
                        return Err(lose(call, error, give_back));
                    }
                }
                match call.insert(at as usize, pages) {
                    true => Ok(call),
                    false => Err(lose(call, EINVAL, give_back)),
                }
            }
            (Self::Admitted(unread), pages) => {
                let (fetched, counted) = KBox::into_inner(unread).finish(pages);
                give_back(counted);
                fetched
            }
            (Self::Split { call, .. }, None) => Err(lose(call, EINVAL, give_back)),
        }
    }
}

/// Drops a call that cannot be processed. Calls `give_back` with the number of its pages that count
/// towards the limits.
#[cold]
#[inline(never)]
fn lose(mut call: Fetched, error: Error, give_back: impl FnOnce(Option<Counted>)) -> Failed {
    let counted = call.call().counted.take();
    drop(call);
    give_back(counted);
    error.into()
}

impl Unread {
    /// Assembles the message of the call, see [`Reading::finish`]. After an error, also returns the
    /// number of pages of the call that count towards the limits.
    #[cold]
    #[inline(never)]
    fn finish(self, pages: Option<Pages>) -> (Result<Fetched, Failed>, Option<Counted>) {
        let Self {
            message,
            parked,
            ticket,
            counted,
            since,
        } = self;
        match assemble(message.bytes(), parked, pages) {
            Ok(Ok((parked, place))) => {
                let call = Call::new(parked, ticket, None, since);
                match Fetched::new(message, 0, call) {
                    Ok(mut fetched) => {
                        fetched.set_place(place);
                        fetched.call().counted = counted;
                        (Ok(fetched), None)
                    }
                    Err(error) => (Err(error.into()), counted),
                }
            }
            Ok(Err(refusal)) => (Err(Failed::Refused(ticket, refusal)), counted),
            Err(error) => (Err(error.into()), counted),
        }
    }
}

/// A call whose message is complete, and the location of the message in memory.
type Assembled = (Parked<Ready>, Place<Pages>);

/// Returns the byte offset in a received message of `len` bytes at which the RPC message begins.
#[inline]
pub(crate) fn start(call: &call::Call<'_, Admitted>, len: usize) -> usize {
    // NO-OVERFLOW: The payload is the last part of the message.
    len.wrapping_sub(call.payload().len())
}

/// Assembles the message of a call that needs no RDMA Reads, or that has several chunks, or whose
/// RPC message is in a chunk.
#[cold]
#[inline(never)]
fn assemble(
    message: &[u8],
    parked: Parked<Admitted>,
    pages: Option<Pages>,
) -> Result<Result<Assembled, Refusal>> {
    let call = parked.resume(message).ok_or(EINVAL)?;
    let start = start(&call, message.len());
    let Some(mut pages) = pages else {
        let ready = call.fetched(&[]);
        return Ok(ready.map(|ready| (ready.park(), Place::Message { start })));
    };
    for fill in call.fills() {
        fill_in(&mut pages, call.payload(), fill)?;
    }
    // CAST: A call has at most a few megabytes.
    let front = PAGE_SIZE.min(call.landing() as usize);
    let assembly = call.assembly();
    // If the whole RPC message is in the pages that the Reads have filled, `fetched` reads the RPC
    // header from the first page. Otherwise `fetched` ignores the first page.
    let (mut call, mut ready) = (Some(call), None);
    pages.change(0, front, |_, front| {
        ready = call.take().map(|call| call.fetched(front));
        Ok(())
    })?;
    let parked = match ready.ok_or(EINVAL)? {
        Ok(ready) => ready.park(),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let place = match assembly {
        Assembly::Inline => Place::Message { start },
        Assembly::Split { at } => Place::Split {
            start,
            at: at as usize,
            pages,
        },
        Assembly::Landed => Place::Pages { start, pages },
    };
    Ok(Ok((parked, place)))
}
