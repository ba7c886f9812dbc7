// SPDX-License-Identifier: GPL-2.0

//! What an administrator can set, with its bounds ([`check`]): parameters when the module is
//! loaded, and sysctls afterwards, whose first values are the parameters.

use crate::{
    driver::Rdma,
    module_parameters, //
};
use core::{
    num::NonZero,
    ops::RangeInclusive, //
};
use kernel::{
    fmt,
    prelude::*, //
};
use xprtrdma_proto::{
    conn,
    rail::table::{
        Locals,
        Servers, //
    },
    time::Millis,
    v2::negotiate::VersionPolicy, //
};
use xprtrdma_rdma::device::fence_registrations;
use xprtrdma_sunrpc::{
    common::Common,
    settings::{
        self,
        Check,
        Setting, //
    },
    sysctl::Sysctl,
    util::{
        may_log,
        number,
        Net,
        Show, //
    },
};

const SLOTS: RangeInclusive<u32> = 4..=4096;
const INLINE: RangeInclusive<u32> = 1024..=65536;
const VERSION: RangeInclusive<u32> = 1..=3;
/// Peers announce sizes in units of this (RFC 8797).
const INLINE_UNIT: NonZero<u32> = NonZero::new(1024).unwrap();

/// Checks the parameters when the module starts, and sets the first values of the sysctls. Returns
/// an error if a parameter is out of its range or makes no sense.
pub(crate) fn check() -> Result {
    settings::check_parameters::<Rdma>()?;
    let slots = number(module_parameters::slots.value());
    let inline = number(module_parameters::inline_size.value());
    let version = number(module_parameters::rdma_version.value());
    if settings::remote_invalidation().is_err() {
        pr_err!("parameter remote_invalidation is neither \"auto\" nor \"never\"\n");
        return Err(EINVAL);
    }
    let fence = number(module_parameters::registration_fence.value());
    let bounds: [(&str, u32, RangeInclusive<u32>); 7] = [
        ("slots", slots, SLOTS),
        ("inline_size", inline, INLINE),
        (
            "region_pages",
            number(module_parameters::region_pages.value()),
            1..=1025,
        ),
        (
            "idle_timeout",
            number(module_parameters::idle_timeout.value()),
            0..=86_400,
        ),
        ("rdma_version", version, VERSION),
        ("registration_fence", fence, 0..=1),
        ("strict", number(module_parameters::strict.value()), 0..=1),
    ];
    for (name, value, range) in bounds {
        if !range.contains(&value) {
            pr_err!(
                "parameter {name}={value} is out of range ({} to {})\n",
                range.start(),
                range.end()
            );
            return Err(EINVAL);
        }
    }
    fence_registrations(fence != 0);
    Sysctl::Slots.preset(slots, &SLOTS, NonZero::<u32>::MIN);
    Sysctl::InlineRead.preset(inline, &INLINE, INLINE_UNIT);
    Sysctl::InlineWrite.preset(inline, &INLINE, INLINE_UNIT);
    Sysctl::Version.preset(version, &VERSION, NonZero::<u32>::MIN);
    Ok(())
}

impl Check for Rdma {
    fn check_setting(setting: Setting, text: &str) -> Result {
        let read = match setting {
            Setting::Rails => Locals::parse(text).map(drop),
            Setting::RailServers => Servers::parse(text).map(drop),
        };
        read.map_err(|refusal| {
            // The administrator of a container may write, too.
            if may_log() {
                pr_err!("{} refused: {}\n", setting.parameter(), Show(&refusal));
            }
            EINVAL
        })
    }
}

/// Shows the values for connections and mounts that are made now, by the names of the parameters,
/// those of the namespace of the task that asks. Process context, may sleep.
pub(crate) fn show(common: &Common, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (out, back) = inline_sizes();
    writeln!(f, "slots: {}", slots())?;
    writeln!(f, "inline_size: {out} out, {back} in")?;
    let units = number(module_parameters::region_pages.value());
    let bytes = max_payload(region_pages());
    writeln!(
        f,
        "region_pages: {units}, at most {bytes} bytes in a request"
    )?;
    let idle = idle_timeout().map_or(0, |idle| idle.get() / 1000);
    writeln!(f, "idle_timeout: {idle}")?;
    writeln!(f, "rdma_version: {}", Sysctl::Version.get())?;
    let fence = number(module_parameters::registration_fence.value());
    writeln!(f, "registration_fence: {fence}")?;
    writeln!(f, "strict: {}", u32::from(strict()))?;
    let invalidation = match remote_invalidation() {
        true => "auto",
        false => "never",
    };
    writeln!(f, "remote_invalidation: {invalidation}")?;
    for (setting, nothing) in [(Setting::Rails, "off"), (Setting::RailServers, "none")] {
        write!(f, "{}:", setting.parameter())?;
        Net::with_current(|net| {
            common.setting(net, setting, |text| {
                // The text may end with newlines.
                let mut entries = text.split_ascii_whitespace().peekable();
                if entries.peek().is_none() {
                    return write!(f, " {nothing}");
                }
                entries.try_for_each(|entry| write!(f, " {entry}"))
            })
        })?;
        writeln!(f)?;
    }
    Ok(())
}

/// Requests in flight on one connection of a transport that is made now.
pub(crate) fn slots() -> u16 {
    // CAST: The sysctl keeps to its range.
    Sysctl::Slots.get().min(*SLOTS.end()) as u16
}

/// Sizes of the largest messages without RDMA on a connection that is made now, in bytes,
/// multiples of 1024: sent and received.
pub(crate) fn inline_sizes() -> (u32, u32) {
    let size = |knob: Sysctl| {
        let size = knob.get().clamp(*INLINE.start(), *INLINE.end());
        size - size % INLINE_UNIT
    };
    (size(Sysctl::InlineWrite), size(Sysctl::InlineRead))
}

/// Which versions of the protocol a transport that is made now may speak (V2-31).
pub(crate) fn version_policy() -> VersionPolicy {
    match Sysctl::Version.get() {
        3 => VersionPolicy::V2Only,
        2 => VersionPolicy::PreferV2,
        _ => VersionPolicy::V1Only,
    }
}

/// The parameter's value for this policy.
pub(crate) fn number_of(policy: VersionPolicy) -> u32 {
    match policy {
        VersionPolicy::V1Only => 1,
        VersionPolicy::PreferV2 => 2,
        VersionPolicy::V2Only => 3,
    }
}

/// Most pages in one region. The parameter counts 4 KiB, whatever size pages have, so that it says
/// the same on all kernels.
pub(crate) fn region_pages() -> u32 {
    conn::pages_of(
        number(module_parameters::region_pages.value()),
        kernel::page::PAGE_SIZE,
    )
}

/// How long nothing uses a connection before it is closed; `None` keeps it.
pub(crate) fn idle_timeout() -> Option<Millis> {
    match number(module_parameters::idle_timeout.value()) {
        0 => None,
        seconds => Some(Millis::from_secs(seconds.into())),
    }
}

/// Which local ends rails may have in the namespace. May sleep.
pub(crate) fn rails<R>(common: &Common, net: &Net, f: impl FnOnce(&Locals) -> R) -> R {
    common.setting(net, Setting::Rails, |text| {
        // The sysctl refuses a text that cannot be parsed.
        f(&Locals::parse(text).unwrap_or(Locals::OFF))
    })
}

/// Whether there are to be rails in the namespace. May sleep.
pub(crate) fn has_rails(common: &Common, net: &Net) -> bool {
    rails(common, net, |locals| !locals.is_off())
}

/// Which addresses belong to one server. May sleep.
pub(crate) fn rail_servers(common: &Common, net: &Net) -> Servers {
    common.setting(net, Setting::RailServers, |text| {
        Servers::parse(text).unwrap_or(Servers::NONE)
    })
}

/// Whether returned segments must equal ours (MAL-068, MAL-069).
pub(crate) fn strict() -> bool {
    number(module_parameters::strict.value()) != 0
}

/// Whether servers may invalidate regions where that is proven.
pub(crate) fn remote_invalidation() -> bool {
    // The start of the module refuses any other value.
    settings::remote_invalidation().unwrap_or(false)
}

/// Bytes of data in one request when a region holds `pages` pages.
pub(crate) fn max_payload(pages: u32) -> usize {
    conn::max_payload(pages, kernel::page::PAGE_SIZE)
}
