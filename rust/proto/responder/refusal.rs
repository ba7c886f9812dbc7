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

/// Length in bytes of an ERR_VERS message, which contains the range of accepted versions.
pub const VERSION_ERROR_LEN: usize = ERROR_LEN + 8;

/// The faults of a Call. The error codes on the wire are:
///
/// - ERR_VERS for [`Fault::Version`],
/// - INVAL_OPTION for [`Fault::Option`],
/// - ERR_CHUNK for every other fault; version two calls this code BAD_HEADER.
// The discriminant has 32 bits. In a `Result`, the fault and the value of `Ok` share the same
// memory. With a smaller discriminant, the compiler would copy this memory byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Fault {
    /// The server does not accept the version of the Call. The error reports the accepted versions.
    Version(Spoken),
    /// The procedure in the transport header is obsolete or unknown.
    Procedure,
    /// A chunk list cannot be decoded.
    Lists,
    /// The Call has more chunks or segments than this server accepts.
    TooComplex,
    /// The RPC message (inline or in the Position-Zero chunk) is missing or too short.
    NoMessage,
    /// The Call contains two RPC messages: one inline and one in a Position-Zero chunk.
    TwoMessages,
    /// The RPC message and the transport header have different xids.
    RpcXid,
    /// The RPC message is neither a Call nor a Reply, or it is a Reply but was sent in a Read
    /// chunk.
    RpcType,
    /// The Position of a Read chunk is not a multiple of four.
    Position,
    /// The Position of a Read chunk is inside the RPC header.
    InsideHeader,
    /// The Position of a Read chunk is beyond the end of the message.
    Outside,
    /// Two Read chunks overlap.
    Overlap,
    /// A chunk has 2^32 bytes or more, or a segment goes beyond the end of the client's address
    /// space.
    Wraps,
    /// The RPC message is longer than this server accepts.
    TooLong,
    /// The procedure has no argument that may be in a Read chunk (RFC 8267).
    NotEligible,
    /// RPCSEC_GSS protects the message, so no argument may be in a Read chunk.
    Protected,
    /// The header of the Reply, which repeats the chunk lists of the Call, does not fit into a
    /// Send.
    ReplyHeader,
    /// The RPC reply fits neither into a Send nor into the Reply chunk.
    ReplyRoom,
    /// A result does not fit into its Write chunk.
    WriteRoom,
    /// The RDMA operations of this Call do not fit into the send queue of this host's device.
    SendQueue,
    /// RDMA operations of this Call failed on several connections, and each of these connections
    /// ended.
    Breaks,
    /// The direction word is neither CALL nor REPLY, or it is CALL and the RPC message is a Reply.
    Direction,
    /// The message is a version 2 option, and this server supports no options.
    Option,
    /// The message is a version 2 option, and the length in its header exceeds the message.
    CutOption,
}

/// How a refused message counts against the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The message violates the protocol or exceeds a limit of this server. It counts as malformed.
    Malformed,
    /// The message is an option. A client may request any option, so it counts separately.
    Option,
    /// The message does not count: the client could not know that the Call would be refused.
    Nothing,
}

impl Fault {
    /// Returns how a message with this fault counts against the client. It does not matter whether
    /// the fault is found when the message arrives, or later in the data that were fetched.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Option => Blame::Option,
            // The client cannot know the length of a reply, which depends on the data of the
            // server. The server may also lack the memory for a reply of this length.
            Self::ReplyRoom | Self::WriteRoom => Blame::Nothing,
            // The client does not know the length of this host's send queue.
            Self::SendQueue => Blame::Nothing,
            // A wrong version counts, because the first refusal tells the client which versions
            // this server accepts.
            Self::Version(_)
            | Self::Procedure
            | Self::Lists
            | Self::TooComplex
            | Self::NoMessage
            | Self::TwoMessages
            | Self::RpcXid
            | Self::RpcType
            | Self::Position
            | Self::InsideHeader
            | Self::Outside
            | Self::Overlap
            | Self::Wraps
            | Self::TooLong
            | Self::NotEligible
            | Self::Protected
            // The client has chosen the chunk lists, and knows the maximum length of a Send. So it
            // knows that the header of the Reply does not fit.
            | Self::ReplyHeader
            // The client named memory that its own device refuses to access.
            | Self::Breaks
            | Self::Direction
            | Self::CutOption => Blame::Malformed,
        }
    }

    /// Returns a description of the fault for traces.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Version(_) => "another version",
            Self::Procedure => "obsolete or unknown procedure",
            Self::Lists => "chunk lists cannot be decoded",
            Self::TooComplex => "too many chunks or segments",
            Self::NoMessage => "no RPC message",
            Self::TwoMessages => "two RPC messages",
            Self::RpcXid => "another xid in the RPC message",
            Self::RpcType => "neither a Call nor a Reply",
            Self::Position => "Position is not a multiple of four",
            Self::InsideHeader => "Position inside the RPC header",
            Self::Outside => "Position behind the end",
            Self::Overlap => "Read chunks overlap",
            Self::Wraps => "chunk wraps",
            Self::TooLong => "message too long",
            Self::NotEligible => "argument may not be in a chunk",
            Self::Protected => "chunk in a protected message",
            Self::ReplyHeader => "returned lists too long",
            Self::ReplyRoom => "no room for the reply",
            Self::WriteRoom => "no room for a result",
            Self::SendQueue => "too many operations for the send queue",
            Self::Breaks => "broke connections before",
            Self::Direction => "neither direction",
            Self::Option => "unknown option",
            Self::CutOption => "option longer than the message",
        }
    }
}

/// An error message that is the response to a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The xid of the Call.
    pub xid: Xid,
    /// The version number of the Call, which the error message repeats (RFC 8166 4.5).
    pub version: u32,
    /// The fault of the Call.
    pub fault: Fault,
}

impl Refusal {
    /// Creates the refusal of a Call in a version that the server accepts.
    #[inline]
    pub const fn new(xid: Xid, version: Version, fault: Fault) -> Self {
        Self {
            xid,
            version: version.number(),
            fault,
        }
    }

    /// Encodes the error message at the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoSpace`] if `buf` is shorter than [`VERSION_ERROR_LEN`]. The caller must
    /// then close the connection (RFC 8166 4.5.4).
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
