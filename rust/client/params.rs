// SPDX-License-Identifier: GPL-2.0

//! The settings for administrators, with their limits ([`check`]): module parameters, which are
//! read when the module is loaded, and sysctls, which start with the values of the parameters.

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
    v2::negotiate::{
        announced_size,
        VersionPolicy, //
    }, //
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
/// Unit of the inline sizes that peers announce, in bytes (RFC 8797).
const INLINE_UNIT: NonZero<u32> = NonZero::new(1024).unwrap();

/// Checks the parameters when the module starts, and initializes the sysctls with them. Returns an
/// error if a parameter is out of its range or invalid.
pub(crate) fn check() -> Result {
    settings::check_parameters::<Rdma>()?;
    let slots = number(module_parameters::slots.value());
    let inline = number(module_parameters::inline_size.value());
    let version = number(module_parameters::rdma_version.value());
    if settings::remote_invalidation().is_err() {
        // LOG: The module is not loaded. Correct the value.
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
            // LOG: The module is not loaded. Correct the value.
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
            // The administrator of a container can write to this sysctl as well, so logging must be
            // limited.
            if may_log() {
                // LOG: A table of rails has a bad entry. A write to the sysctl fails and leaves the
                // table unchanged. If the entry is in a module parameter, the module is not loaded.
                pr_err!("{} refused: {}\n", setting.parameter(), Show(&refusal));
            }
            EINVAL
        })
    }
}

/// Shows the values that apply to new connections and mounts in the network namespace of the
/// current task, by the names of the parameters. Must be called in process context. May sleep.
pub(crate) fn show(common: &Common, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (out, back) = inline_sizes(version_policy());
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
                // The value of the parameter may contain newlines, but is shown on one line.
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

/// Returns the maximum number of requests in flight on one connection, for a new transport.
pub(crate) fn slots() -> u16 {
    // CAST: The cast cannot truncate: the value is at most `SLOTS.end()`, which fits into 16 bits.
    Sysctl::Slots.get().min(*SLOTS.end()) as u16
}

/// Returns the sizes of the largest messages that a new connection sends and receives without RDMA,
/// in bytes. Both sizes are multiples of 1024. The default is larger if the transport may use
/// version 2.
pub(crate) fn inline_sizes(policy: VersionPolicy) -> (u32, u32) {
    let size = |knob: Sysctl| {
        let size = knob.get().clamp(*INLINE.start(), *INLINE.end());
        announced_size(policy, size - size % INLINE_UNIT)
    };
    (size(Sysctl::InlineWrite), size(Sysctl::InlineRead))
}

/// Returns which protocol versions a new transport may use (V2-31).
pub(crate) fn version_policy() -> VersionPolicy {
    match Sysctl::Version.get() {
        3 => VersionPolicy::V2Only,
        2 => VersionPolicy::PreferV2,
        _ => VersionPolicy::V1Only,
    }
}

/// Returns the value of the parameter `rdma_version` that selects these protocol versions.
pub(crate) fn number_of(policy: VersionPolicy) -> u32 {
    match policy {
        VersionPolicy::V1Only => 1,
        VersionPolicy::PreferV2 => 2,
        VersionPolicy::V2Only => 3,
    }
}

/// Returns the maximum number of pages in one region. The parameter `region_pages` counts units of
/// 4 KiB, whatever the page size, so that it means the same on all kernels.
pub(crate) fn region_pages() -> u32 {
    conn::pages_of(
        number(module_parameters::region_pages.value()),
        kernel::page::PAGE_SIZE,
    )
}

/// Returns the time after which an unused connection is closed; `None` if it is never closed.
pub(crate) fn idle_timeout() -> Option<Millis> {
    match number(module_parameters::idle_timeout.value()) {
        0 => None,
        seconds => Some(Millis::from_secs(seconds.into())),
    }
}

/// Calls `f` once, with the local ends of rails that are configured in the namespace. May sleep.
pub(crate) fn rails<R>(common: &Common, net: &Net, f: impl FnOnce(&Locals) -> R) -> R {
    common.setting(net, Setting::Rails, |text| {
        // The text can be parsed, because the sysctl and the module parameter refuse any other
        // text.
        f(&Locals::parse(text).unwrap_or(Locals::OFF))
    })
}

/// Returns whether rails are configured in the namespace. May sleep.
pub(crate) fn has_rails(common: &Common, net: &Net) -> bool {
    rails(common, net, |locals| !locals.is_off())
}

/// Returns the groups of server addresses that are configured in the namespace. Each group contains
/// the addresses of one server. May sleep.
pub(crate) fn rail_servers(common: &Common, net: &Net) -> Servers {
    common.setting(net, Setting::RailServers, |text| {
        Servers::parse(text).unwrap_or(Servers::NONE)
    })
}

/// Returns whether the segments that a reply returns must equal those that the call offered
/// (MAL-068, MAL-069).
pub(crate) fn strict() -> bool {
    number(module_parameters::strict.value()) != 0
}

/// Returns whether remote invalidation is allowed on devices that prove each invalidation. Remote
/// invalidation is never allowed on other devices.
pub(crate) fn remote_invalidation() -> bool {
    // The check at module start refuses invalid values of the parameter, so the error cannot occur.
    settings::remote_invalidation().unwrap_or(false)
}

/// Returns the maximum number of data bytes in one request if a region holds `pages` pages.
pub(crate) fn max_payload(pages: u32) -> usize {
    conn::max_payload(pages, kernel::page::PAGE_SIZE)
}
