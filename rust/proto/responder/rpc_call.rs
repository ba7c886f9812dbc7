// SPDX-License-Identifier: GPL-2.0

//! The fields of an RPC Call header on which the use of chunks depends (RFC 5531 9, RFC 8267).

use crate::wire::xdr::{
    round_up,
    Malformed,
    Reader, //
};

/// Length in bytes of the shortest RPC Call header: six words, an empty credential, and an empty
/// verifier.
pub(crate) const MIN_RPC_CALL: u32 = 40;

const NFS_PROGRAM: u32 = 100_003;
const RPCSEC_GSS: u32 = 6;
/// Values of the service field in a credential of RPCSEC_GSS (RFC 2203 5.3.1).
const GSS_INTEGRITY: u32 = 2;
const GSS_PRIVACY: u32 = 3;

/// The parsed header of an RPC Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RpcCall {
    program: u32,
    version: u32,
    procedure: u32,
    /// Whether the credential requests RPCSEC_GSS integrity or privacy, or cannot be parsed.
    pub(crate) protected: bool,
    /// Length of the header in bytes; the arguments follow it.
    pub(crate) len: u32,
}

impl RpcCall {
    /// Parses the RPC Call header at the front of a message. Returns [`Malformed`] if the header is
    /// incomplete.
    #[inline(always)]
    pub(crate) fn parse(stream: &[u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(stream);
        let [_xid, _type, _rpc_version, program, version, procedure, flavor, length] =
            words(&input.array::<32>()?)?;
        let (credential, padded) = opaque(length, &mut input)?;
        let [_verifier_flavor, length] = words(&input.array::<8>()?)?;
        let (_, verifier) = opaque(length, &mut input)?;
        Ok(Self {
            program,
            version,
            procedure,
            protected: flavor == RPCSEC_GSS && protects(credential),
            len: MIN_RPC_CALL
                .checked_add(padded)
                .and_then(|len| len.checked_add(verifier))
                .ok_or(Malformed)?,
        })
    }

    /// Returns true if RPCSEC_GSS protects or may protect the message. Also returns true if the
    /// fixed part of the header is incomplete. Other faults of the header need not be detected
    /// here: the RPC layer rejects a message with such a fault, and the reply has no results.
    #[inline(always)]
    pub(crate) fn is_protected(stream: &[u8]) -> bool {
        let flavor = match Reader::new(stream).array::<32>() {
            Ok([.., a, b, c, d, _, _, _, _]) => u32::from_be_bytes([a, b, c, d]),
            Err(Malformed) => return true,
        };
        flavor == RPCSEC_GSS && Self::may_be_protected(stream)
    }

    #[cold]
    fn may_be_protected(stream: &[u8]) -> bool {
        Self::parse(stream).map_or(true, |header| header.protected)
    }

    /// Returns true if the procedure has an argument that may be in a Read chunk (RFC 8267,
    /// sections 3 and 6).
    #[inline]
    pub(crate) fn has_eligible_argument(&self) -> bool {
        self.program == NFS_PROGRAM
            && match self.version {
                // The procedures with an eligible argument are WRITE and SYMLINK. Their numbers
                // differ between NFSv2 and NFSv3.
                2 => matches!(self.procedure, 8 | 13),
                3 => matches!(self.procedure, 7 | 10),
                // The procedure is COMPOUND. The operations in it are not checked here: the NFS
                // decoder checks them.
                4 => self.procedure == 1,
                _ => false,
            }
    }
}

/// Returns the first `N` words of these bytes. If the number of bytes is constant, the compiler
/// removes all checks of the length.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> Result<[u32; N], Malformed> {
    let mut input = Reader::new(bytes);
    let mut all = [0; N];
    for word in &mut all {
        *word = input.u32()?;
    }
    Ok(all)
}

/// Takes the data of an opaque XDR item of `length` bytes, together with the padding. Returns the
/// data and the padding, and the number of bytes in both.
#[inline(always)]
fn opaque<'a>(length: u32, input: &mut Reader<'a>) -> Result<(&'a [u8], u32), Malformed> {
    let padded = round_up(length).ok_or(Malformed)?;
    let len = usize::try_from(padded).map_err(|_| Malformed)?;
    Ok((input.take(len)?, padded))
}

/// Returns true if a credential of RPCSEC_GSS requests integrity or privacy. Also returns true if
/// the credential cannot be parsed, so that no data of its message may be in chunks.
fn protects(credential: &[u8]) -> bool {
    match words(credential) {
        Ok([_version, _procedure, _sequence, service]) => {
            matches!(service, GSS_INTEGRITY | GSS_PRIVACY)
        }
        Err(Malformed) => true,
    }
}
