// SPDX-License-Identifier: GPL-2.0

//! Errors that are reported to the client (RFC 8166 4.5).

use crate::{
    error::Error,
    responder::{
        grant::Granted,
        spoken::Spoken, //
    },
    wire::{
        header::{
            err_nr,
            proc_nr,
            Fixed,
            Version,
            Xid,
            ERROR_LEN, //
        },
        xdr::{
            Full,
            Writer, //
        }, //
    }, //
};

/// Bytes of an error message with a range of versions.
pub const VERSION_ERROR_LEN: usize = ERROR_LEN + 8;

/// What is wrong with a Call. On the wire it is ERR_VERS, INVAL_OPTION, or else ERR_CHUNK, which is
/// BAD_HEADER in version two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Its version is not among those that are spoken here.
    Version(Spoken),
    /// Its procedure is obsolete or unknown.
    Procedure,
    /// A chunk list cannot be decoded.
    Lists,
    /// There are more chunks or segments than this server takes.
    TooComplex,
    /// There is no place for the RPC message: too few inline bytes, or no Position-Zero chunk.
    NoMessage,
    /// There are two RPC messages: inline bytes and a Position-Zero chunk.
    TwoMessages,
    /// The RPC message has another xid than the header.
    RpcXid,
    /// The RPC message is neither a Call nor a Reply, or a Reply in a Read chunk.
    RpcType,
    /// A Position is not a multiple of four.
    Position,
    /// A Position is inside the RPC header.
    InsideHeader,
    /// A Position is behind the end of the message.
    Outside,
    /// Two Read chunks overlap.
    Overlap,
    /// A chunk is longer than 2^32 bytes, or wraps in the client's memory.
    Wraps,
    /// The message is longer than this server takes.
    TooLong,
    /// The argument may not be in a chunk (RFC 8267).
    NotEligible,
    /// The message is protected, so that no argument may be in a chunk.
    Protected,
    /// The lists that a Reply returns do not fit into a Send.
    ReplyHeader,
    /// The reply fits neither into a Send nor into the Reply chunk.
    ReplyRoom,
    /// A result does not fit into its Write chunk.
    WriteRoom,
    /// The RDMA operations of this Call ended one connection after another.
    Breaks,
    /// The direction word is neither CALL nor REPLY, or it is CALL before a Reply.
    Direction,
    /// It is an option, and none is known here.
    Option,
    /// It is an option longer than the message.
    CutOption,
}

/// An error message that completes a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The xid of the Call.
    pub xid: Xid,
    /// The version word of the Call, which the error repeats (RFC 8166 4.5).
    pub version: u32,
    /// Why.
    pub fault: Fault,
}

impl Refusal {
    /// Makes the refusal of a Call in a version that is spoken.
    #[inline]
    pub(crate) const fn new(xid: Xid, version: Version, fault: Fault) -> Self {
        Self {
            xid,
            version: version.number(),
            fault,
        }
    }

    /// Writes the message to the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if `buf` is shorter than [`VERSION_ERROR_LEN`]. The connection ends then
    /// (RFC 8166 4.5.4).
    pub fn encode(&self, granted: Granted, buf: &mut [u8]) -> Result<usize, Error> {
        let buf = buf.get_mut(..VERSION_ERROR_LEN).ok_or(Error::NoSpace)?;
        self.put(&granted, &mut Writer::new(buf))
            .map_err(|Full| Error::NoSpace)
    }

    fn put(&self, granted: &Granted, out: &mut Writer<'_>) -> Result<usize, Full> {
        Fixed {
            xid: self.xid,
            version: self.version,
            credits: granted.credits(),
            procedure: proc_nr::ERROR,
        }
        .encode(out)?;
        match self.fault {
            Fault::Version(spoken) => {
                let [low, high] = spoken.range();
                out.words([err_nr::VERS, low, high])?;
                return Ok(VERSION_ERROR_LEN);
            }
            Fault::Option => out.u32(err_nr::INVAL_OPTION)?,
            _ => out.u32(err_nr::CHUNK)?,
        }
        Ok(ERROR_LEN)
    }
}
