// SPDX-License-Identifier: GPL-2.0

//! Texts that the administrator of a network namespace sets ([`Setting`]).
//!
//! Each is a parameter of the module, with which every namespace begins, and a file in the
//! `/proc/sys/sunrpc` of each namespace. Writing it takes `CAP_NET_ADMIN` in the user namespace
//! that owns the network namespace. The texts end with their namespace. The driver decides which
//! texts are valid.

use core::{
    marker::PhantomData,
    slice,
    str::from_utf8, //
};
use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    }, //
};
use xprtrdma_base::{
    log::may_log,
    net::Net, //
};
use xprtrdma_bindings as bindings;

/// Bytes of the longest text.
pub const LONGEST: usize = 4096;

/// A text that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `rails`, `rdma_rails`: which local addresses and devices connections may take.
    Rails,
    /// `rail_servers`, `rdma_rail_servers`: which addresses belong to one server.
    RailServers,
}

const ALL: [Setting; 2] = [Setting::Rails, Setting::RailServers];

impl Setting {
    fn raw(self) -> bindings::xprtrdma_setting {
        match self {
            Self::Rails => bindings::xprtrdma_setting_XPRTRDMA_SETTING_RAILS,
            Self::RailServers => bindings::xprtrdma_setting_XPRTRDMA_SETTING_RAIL_SERVERS,
        }
    }

    fn of(raw: bindings::xprtrdma_setting) -> Result<Self> {
        ALL.into_iter()
            .find(|setting| setting.raw() == raw)
            .ok_or(EINVAL)
    }

    /// The name of the module's parameter.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Rails => "rails",
            Self::RailServers => "rail_servers",
        }
    }
}

/// Whether servers may invalidate regions, by the parameter `remote_invalidation`. `EINVAL`: it is
/// neither "auto" nor "never".
pub fn remote_invalidation() -> Result<bool> {
    // SAFETY: No requirements.
    match unsafe { bindings::xprtrdma_remote_invalidation() } {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EINVAL),
    }
}

/// Checks the texts of the module's parameters like texts that are written later. Called when the
/// module is loaded, which fails with this error. May sleep.
pub fn check_parameters<C: Check>() -> Result {
    for setting in ALL {
        // SAFETY: The function returns a string that is not changed as long as the module is
        // loaded: its parameter cannot be written to.
        let text =
            unsafe { CStr::from_char_ptr(bindings::xprtrdma_setting_parameter(setting.raw())) };
        check::<C>(setting, text.to_bytes())?;
    }
    Ok(())
}

/// Decides what a text may say.
pub trait Check {
    /// Checks a text before it is set. If it is invalid, logs the reason and returns the error that
    /// the write to the file reports. Process context, may sleep.
    fn check_setting(setting: Setting, text: &str) -> Result;
}

/// The registration of the texts of all namespaces.
///
/// # Invariants
///
/// The texts are registered, by this value alone.
pub(crate) struct Settings(PhantomData<()>);

/// Whether there are [`Settings`].
static REGISTERED: Atomic<bool> = Atomic::new(false);

impl Settings {
    /// Registers the texts of each namespace, of today's and of later ones. They begin as the
    /// module's parameters.
    ///
    /// `EBUSY`: there are settings; `ENOMEM`. Sleeps.
    pub(crate) fn register<C: Check>() -> Result<Self> {
        if REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: The flag lets no thread come here before the last registration is given back. The
        // function is part of this module, which outlives the registration.
        let result = to_result(unsafe { bindings::xprtrdma_register_settings(Some(may_be::<C>)) });
        if let Err(e) = result {
            REGISTERED.store(false, Release);
            return Err(e);
        }
        // INVARIANT: Registered just now.
        Ok(Self(PhantomData))
    }

    /// Calls `f` with a text as it is now. May sleep; `f` must not set or read one.
    ///
    /// The reference keeps the namespace from ending, and its texts go at its end.
    pub(crate) fn read<R>(&self, net: &Net, setting: Setting, f: impl FnOnce(&str) -> R) -> R {
        let mut len = 0;
        // SAFETY: The texts are registered by the type invariant, and the namespace is referenced.
        let text =
            unsafe { bindings::xprtrdma_hold_setting(net.as_raw(), setting.raw(), &mut len) };
        let _held = Held(net);
        // SAFETY: The text has that many bytes, and is not changed while it is held.
        let text = unsafe { slice::from_raw_parts(text.cast::<u8>(), len) };
        // A text that is not UTF-8 was refused when it was set.
        f(from_utf8(text).unwrap_or_default())
    }

    /// Returns a number that changes with every change of a text of this namespace. May be called
    /// in any context.
    pub(crate) fn changes(&self, net: &Net) -> u32 {
        // SAFETY: The texts are registered by the type invariant, and the namespace is referenced.
        unsafe { bindings::xprtrdma_settings_changes(net.as_raw()) }
    }

    /// Sets a text, as a write to its file does.
    #[cfg(xprtrdma_kunit)]
    pub(crate) fn set(&self, net: &Net, setting: Setting, text: &[u8]) -> Result {
        // SAFETY: The texts are registered by the type invariant, and the namespace is referenced;
        // as many bytes may be read.
        to_result(unsafe {
            bindings::xprtrdma_set_setting(
                net.as_raw(),
                setting.raw(),
                text.as_ptr().cast(),
                text.len(),
            )
        })
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant. The callee waits for readers and writers of the
        // files.
        unsafe { bindings::xprtrdma_unregister_settings() };
        // ORDERING: Pairs with the exchange in `register`.
        REGISTERED.store(false, Release);
    }
}

/// The text of a namespace, locked against changes.
struct Held<'a>(&'a Net);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: Made by `Settings::read` only, when this thread holds them.
        unsafe { bindings::xprtrdma_release_settings(self.0.as_raw()) };
    }
}

/// Checks a text that is about to be set.
fn check<C: Check>(setting: Setting, text: &[u8]) -> Result {
    let text = from_utf8(text).ok().filter(|text| text.len() <= LONGEST);
    let Some(text) = text else {
        if may_log() {
            pr_err!(
                "{} refused: not a text of at most {LONGEST} bytes\n",
                setting.parameter()
            );
        }
        return Err(EINVAL);
    };
    C::check_setting(setting, text)
}

/// # Safety
///
/// `text` has `len` bytes that may be read during the call.
unsafe extern "C" fn may_be<C: Check>(
    setting: bindings::xprtrdma_setting,
    text: *const c_char,
    len: usize,
) -> c_int {
    // SAFETY: By this function's contract. There is a pointer even to no bytes.
    let text = unsafe { slice::from_raw_parts(text.cast::<u8>(), len) };
    from_result(|| {
        check::<C>(Setting::of(setting)?, text)?;
        Ok(0)
    })
}
