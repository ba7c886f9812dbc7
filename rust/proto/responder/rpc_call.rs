// SPDX-License-Identifier: GPL-2.0

//! The header of an RPC Call, as far as chunks depend on it (RFC 5531 9, RFC 8267).

use crate::wire::xdr::{
    round_up,
    Malformed,
    Reader, //
};

/// Bytes of the shortest header: six words, an empty credential, an empty verifier.
pub(crate) const MIN_RPC_CALL: u32 = 40;

const NFS_PROGRAM: u32 = 100_003;
const RPCSEC_GSS: u32 = 6;
/// Values of the service word of RPCSEC_GSS (RFC 2203 5.3.1).
const GSS_INTEGRITY: u32 = 2;
const GSS_PRIVACY: u32 = 3;

/// The header of an RPC Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RpcCall {
    program: u32,
    version: u32,
    procedure: u32,
    /// The credential asks for integrity or privacy, or cannot be understood.
    pub(crate) protected: bool,
    /// Number of bytes before the arguments.
    pub(crate) len: u32,
}

impl RpcCall {
    /// Reads the header at the front of a message; [`Malformed`] if not all of it is there.
    pub(crate) fn parse(stream: &[u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(stream);
        let [_xid, _type, _rpc_version] = words(&mut input)?;
        let [program, version, procedure] = words(&mut input)?;
        let [flavor] = words(&mut input)?;
        let (credential, padded) = opaque(&mut input)?;
        let [_verifier_flavor] = words(&mut input)?;
        let (_, verifier) = opaque(&mut input)?;
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

    /// True if the procedure has an argument that may be in a Read chunk (RFC 8267, sections 3, 6).
    pub(crate) fn has_eligible_argument(&self) -> bool {
        let procedures: &[u32] = match (self.program, self.version) {
            // WRITE and SYMLINK.
            (NFS_PROGRAM, 2) => &[8, 13],
            (NFS_PROGRAM, 3) => &[7, 10],
            // COMPOUND; the operations are for the decoder.
            (NFS_PROGRAM, 4) => &[1],
            _ => &[],
        };
        procedures.contains(&self.procedure)
    }
}

fn words<const N: usize>(input: &mut Reader<'_>) -> Result<[u32; N], Malformed> {
    let mut all = [0; N];
    for word in &mut all {
        *word = input.u32()?;
    }
    Ok(all)
}

/// An item of variable length, and its bytes with the pad.
fn opaque<'a>(input: &mut Reader<'a>) -> Result<(&'a [u8], u32), Malformed> {
    let padded = round_up(input.u32()?).ok_or(Malformed)?;
    let len = usize::try_from(padded).map_err(|_| Malformed)?;
    Ok((input.take(len)?, padded))
}

/// True if a credential of RPCSEC_GSS asks for integrity or privacy. What is not understood counts
/// as protected, for then nothing is reduced.
fn protects(credential: &[u8]) -> bool {
    match words(&mut Reader::new(credential)) {
        Ok([_version, _procedure, _sequence, service]) => {
            matches!(service, GSS_INTEGRITY | GSS_PRIVACY)
        }
        Err(Malformed) => true,
    }
}
