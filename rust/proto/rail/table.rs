// SPDX-License-Identifier: GPL-2.0

//! The tables of rails that an administrator writes ([`Locals`], [`Servers`]), and why a text is
//! refused ([`Refusal`]).
//!
//! Entries are separated by spaces, commas or line ends. An empty text is valid: for [`Locals`] it
//! means that there are no rails, and for [`Servers`] that no server has further addresses.

use super::place::{
    Local,
    Name, //
};
use core::{
    fmt,
    iter,
    net::IpAddr, //
};

/// Maximum number of entries in a list of local addresses and devices.
pub const MAX_LOCALS: usize = 16;

/// Maximum number of addresses in all groups of servers together.
pub const MAX_SERVERS: usize = 64;

/// One entry of a list of local addresses and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A local IP address.
    Addr(IpAddr),
    /// A device, and optionally the number of one of its ports.
    Device(Name, Option<u32>),
}

impl Pick {
    /// Parses an entry. The entry must not be empty, and must not contain a separator.
    fn parse(entry: &str) -> Result<Self, Why> {
        if let Ok(addr) = entry.parse() {
            return host(addr).map(Self::Addr);
        }
        let (name, port) = cut(entry, |byte| byte == b'/');
        if name.parse::<IpAddr>().is_ok() {
            return Err(Why::Prefix);
        }
        let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        // The kernel would accept a device name without a letter, but such an entry is more likely
        // an address with a mistake.
        let has_letter = name.bytes().any(|b| b.is_ascii_alphabetic());
        if !has_letter || !name.bytes().all(is_of_name) {
            return Err(Why::NotLocal);
        }
        let device = Name::new(name).ok_or(Why::NotLocal)?;
        let port = match port {
            None => None,
            Some(port) => Some(number(port).filter(|port| *port > 0).ok_or(Why::BadPort)?),
        };
        Ok(Self::Device(device, port))
    }

    /// Returns true if this entry matches the local address and port.
    fn names(&self, local: &Local) -> bool {
        match self {
            Self::Addr(addr) => *addr == local.addr,
            Self::Device(device, port) => {
                *device == local.device && port.is_none_or(|port| port == local.port)
            }
        }
    }
}

/// Whether the table contains no rails, all rails, or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Off,
    Auto,
    List,
}

/// The local addresses and devices that rails may use: none (`off`), all (`auto`), or a list of
/// addresses and devices, as in `192.0.2.2 2001:db8::2 mlx5_0 mlx5_1/2`.
#[derive(Debug, PartialEq, Eq)]
pub struct Locals {
    which: Which,
    list: [Option<Pick>; MAX_LOCALS],
}

impl Locals {
    /// The table that allows no rails.
    pub const OFF: Self = Self {
        which: Which::Off,
        list: [const { None }; MAX_LOCALS],
    };

    /// Parses the text of this table. An error names the first wrong entry.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut locals = Self::OFF;
        let mut entries = entries(text);
        let alone = match entries.next() {
            None | Some("off") => Some(Which::Off),
            Some("auto") => Some(Which::Auto),
            Some(_) => None,
        };
        if let Some(which) = alone {
            locals.which = which;
            return match entries.next() {
                None => Ok(locals),
                Some(entry) => Err(Refusal::new(entry, Why::NotAlone)),
            };
        }
        locals.which = Which::List;
        for entry in self::entries(text) {
            locals.add(entry).map_err(|why| Refusal::new(entry, why))?;
        }
        Ok(locals)
    }

    fn add(&mut self, entry: &str) -> Result<(), Why> {
        if matches!(entry, "off" | "auto") {
            return Err(Why::NotAlone);
        }
        let pick = Some(Pick::parse(entry)?);
        let mut places = self.list.iter_mut();
        match places.find(|place| place.is_none() || **place == pick) {
            Some(place) if place.is_none() => *place = pick,
            Some(_) => return Err(Why::Twice),
            None => return Err(Why::TooMany(MAX_LOCALS)),
        }
        Ok(())
    }

    /// Returns true if rails are switched off.
    pub fn is_off(&self) -> bool {
        self.which == Which::Off
    }

    /// Returns the entries that match none of these local addresses and ports.
    pub fn absent<'a>(
        &'a self,
        ends: impl Iterator<Item = Local> + Clone + 'a,
    ) -> impl Iterator<Item = Pick> + 'a {
        let is_absent = move |pick: &&Pick| !ends.clone().any(|end| pick.names(&end));
        self.list.iter().flatten().filter(is_absent).copied()
    }

    /// Returns true if rails may use this local address and port.
    pub fn admits(&self, local: &Local) -> bool {
        match self.which {
            Which::Off => false,
            Which::Auto => true,
            Which::List => self.list.iter().flatten().any(|pick| pick.names(local)),
        }
    }
}

/// An address of a server, and the number of the group that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    group: u8,
    addr: IpAddr,
}

/// Further addresses of servers. Each group contains the addresses of one server, as in
/// `192.0.2.1=198.51.100.1 2001:db8::1=2001:db8:1::1`.
#[derive(Debug, PartialEq, Eq)]
pub struct Servers {
    members: [Option<Member>; MAX_SERVERS],
}

impl Servers {
    /// An empty table: no server has further addresses.
    pub const NONE: Self = Self {
        members: [None; MAX_SERVERS],
    };

    /// Parses the text of this table. An error names the first wrong group or address.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut servers = Self::NONE;
        let mut group = 0u8;
        for entry in entries(text) {
            if !entry.bytes().any(is_equals_sign) {
                return Err(Refusal::new(entry, Why::NoGroup));
            }
            for part in parts(entry, is_equals_sign) {
                let told = if part.is_empty() { entry } else { part };
                let added = servers.add(group, part);
                added.map_err(|why| Refusal::new(told, why))?;
            }
            group = group.saturating_add(1);
        }
        Ok(servers)
    }

    fn add(&mut self, group: u8, text: &str) -> Result<(), Why> {
        let addr = host(text.parse().map_err(|_| Why::NoAddress)?)?;
        let is_taken = |place: &&mut Option<Member>| place.is_none_or(|member| member.addr == addr);
        match self.members.iter_mut().find(is_taken) {
            Some(place) if place.is_none() => *place = Some(Member { group, addr }),
            Some(_) => return Err(Why::Twice),
            None => return Err(Why::TooMany(MAX_SERVERS)),
        }
        Ok(())
    }

    /// Returns the other addresses of the server that has the address `of`, in the order of the
    /// table.
    pub fn others(&self, of: IpAddr) -> impl Iterator<Item = IpAddr> + '_ {
        let members = self.members.iter().flatten();
        let group = members
            .clone()
            .find(|member| member.addr == of)
            .map(|member| member.group);
        members
            .filter(move |member| Some(member.group) == group && member.addr != of)
            .map(|member| member.addr)
    }
}

/// Returns the nonempty parts of the text between commas and white space.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    let is_between = |byte: u8| byte == b',' || byte.is_ascii_whitespace();
    parts(text, is_between).filter(|entry| !entry.is_empty())
}

fn is_equals_sign(byte: u8) -> bool {
    byte == b'='
}

// The functions below replace functions of the standard library that split a text or parse a
// number. The standard functions contain panics that the compiler cannot remove.

/// Returns the parts of a text between separators. The separators must be ASCII.
fn parts(text: &str, is_between: impl Fn(u8) -> bool) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let (part, more) = cut(rest?, &is_between);
        rest = more;
        Some(part)
    })
}

/// Returns the text before the first separator, and the text after it. The separator must be
/// ASCII.
fn cut(text: &str, is_between: impl Fn(u8) -> bool) -> (&str, Option<&str>) {
    let mut end = 0usize;
    for byte in text.bytes() {
        if is_between(byte) {
            break;
        }
        // NO-OVERFLOW: `end` is less than the length of the text.
        end = end.wrapping_add(1);
    }
    match text.get(end.wrapping_add(1)..) {
        Some(behind) if end < text.len() => (text.get(..end).unwrap_or(text), Some(behind)),
        _ => (text, None),
    }
}

/// Parses a decimal number.
fn number(text: &str) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0u32, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| byte.wrapping_sub(b'0'))?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Returns the address if it can be the address of one host and is not a link-local IPv6 address.
fn host(addr: IpAddr) -> Result<IpAddr, Why> {
    let (is_link_local, is_mapped) = match addr {
        IpAddr::V4(addr) => (false, addr.is_broadcast()),
        IpAddr::V6(addr) => (
            addr.is_unicast_link_local(),
            addr.to_ipv4_mapped().is_some(),
        ),
    };
    if is_link_local {
        Err(Why::LinkLocal)
    } else if is_mapped || addr.is_unspecified() || addr.is_multicast() {
        Err(Why::NoHost)
    } else {
        Ok(addr)
    }
}

/// The reason why an entry is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NotLocal,
    Prefix,
    BadPort,
    NoAddress,
    NoGroup,
    NoHost,
    LinkLocal,
    NotAlone,
    Twice,
    TooMany(usize),
}

/// A refusal shows at most this number of bytes of the refused entry. This is enough for the
/// longest address and for most names.
const REPEATED: usize = 48;

/// The refusal of a text. It is displayed as a sentence with the entry that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    entry: [u8; REPEATED],
    len: usize,
    why: Why,
}

impl Refusal {
    fn new(text: &str, why: Why) -> Self {
        let mut entry = [0; REPEATED];
        // Only printable characters from the text may appear in the log.
        for (to, from) in entry.iter_mut().zip(text.bytes()) {
            *to = if from.is_ascii_graphic() { from } else { b'?' };
        }
        let len = text.len();
        Self { entry, len, why }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.entry.get(..self.len).unwrap_or(&self.entry);
        let text = core::str::from_utf8(shown).unwrap_or("?");
        let cut = if self.len > REPEATED { "..." } else { "" };
        write!(f, "\"{text}{cut}\" ")?;
        match self.why {
            Why::NotLocal => f.write_str("is neither an address nor the name of an RDMA device"),
            Why::Prefix => f.write_str("has a slash behind an address, which stands alone"),
            Why::BadPort => f.write_str("has no number from 1 behind the slash"),
            Why::NoAddress => f.write_str("is no IP address"),
            Why::NoGroup => f.write_str("is no group of addresses, as in 192.0.2.1=198.51.100.1"),
            Why::NoHost => f.write_str("is not the address of one host"),
            Why::LinkLocal => f.write_str("is a link-local address, which does not name its link"),
            Why::NotAlone => f.write_str("cannot be in a list with \"off\" or \"auto\""),
            Why::Twice => f.write_str("is there twice"),
            Why::TooMany(most) => write!(f, "is too much: there is room for {most}"),
        }
    }
}
