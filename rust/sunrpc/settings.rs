// SPDX-License-Identifier: GPL-2.0

//! Settings of network namespaces ([`Setting`]). The values of the settings are texts, which the
//! administrator can change.
//!
//! Each setting has a module parameter, which provides the initial value. It also has a file in
//! `/proc/sys/sunrpc` of each network namespace. Writing the file requires `CAP_NET_ADMIN` in the
//! user namespace that owns the network namespace. The settings are freed with their namespace. The
//! driver decides which texts are valid.

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

/// Maximum length of a text, in bytes.
pub const LONGEST: usize = 4096;

/// A setting whose value is a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Module parameter `rails`, file `rdma_rails`: which local addresses and devices connections
    /// may use.
    Rails,
    /// Module parameter `rail_servers`, file `rdma_rail_servers`: which addresses belong to one
    /// server.
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

    /// Returns the name of the module parameter.
    pub fn parameter(self) -> &'static str {
        match self {
            Self::Rails => "rails",
            Self::RailServers => "rail_servers",
        }
    }
}

/// Returns whether the module parameter `remote_invalidation` allows servers to invalidate regions.
/// Returns `EINVAL` if the parameter is neither "auto" nor "never".
pub fn remote_invalidation() -> Result<bool> {
    // SAFETY: The function has no requirements.
    match unsafe { bindings::xprtrdma_remote_invalidation() } {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EINVAL),
    }
}

/// Checks the values of the module parameters, by the same rules as a text that is written to the
/// file of a setting. Called when the module is loaded. If this function returns an error, loading
/// fails with that error. May sleep.
pub fn check_parameters<C: Check>() -> Result {
    for setting in ALL {
        // SAFETY: The function returns a string that does not change while the module is loaded,
        // because the module parameter is read-only.
        let text =
            unsafe { CStr::from_char_ptr(bindings::xprtrdma_setting_parameter(setting.raw())) };
        check::<C>(setting, text.to_bytes())?;
    }
    Ok(())
}

/// The driver's check of a text that was written to a setting.
pub trait Check {
    /// Checks a text before it is set. If the text is invalid, logs the reason and returns the
    /// error for the write to the file. Process context, may sleep.
    fn check_setting(setting: Setting, text: &str) -> Result;
}

/// The registration of the settings of all network namespaces.
///
/// # Invariants
///
/// The settings are registered, and no other value of this type exists.
pub(crate) struct Settings(PhantomData<()>);

/// Whether a [`Settings`] value exists.
static REGISTERED: Atomic<bool> = Atomic::new(false);

impl Settings {
    /// Registers the settings for all present and future network namespaces. The initial values of
    /// the settings are the module parameters.
    ///
    /// Returns `EBUSY` if the settings are registered already, and `ENOMEM` if no memory is
    /// available. May sleep.
    pub(crate) fn register<C: Check>() -> Result<Self> {
        if REGISTERED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: Because of the flag `REGISTERED`, no thread executes this code before the
        // previous registration has ended. The function is part of this module, which outlives the
        // registration.
        let result = to_result(unsafe { bindings::xprtrdma_register_settings(Some(may_be::<C>)) });
        if let Err(e) = result {
            REGISTERED.store(false, Release);
            return Err(e);
        }
        // INVARIANT: The settings have just been registered.
        Ok(Self(PhantomData))
    }

    /// Calls `f` with the current text of a setting. May sleep. `f` must not set or read a setting.
    ///
    /// The settings exist as long as the namespace, and the reference `net` keeps the namespace
    /// alive.
    pub(crate) fn read<R>(&self, net: &Net, setting: Setting, f: impl FnOnce(&str) -> R) -> R {
        let mut len = 0;
        // SAFETY: By the type invariant, the texts are registered. The namespace is referenced.
        let text =
            unsafe { bindings::xprtrdma_hold_setting(net.as_raw(), setting.raw(), &mut len) };
        let _held = Held(net);
        // SAFETY: The text has `len` bytes, and does not change before `_held` is dropped.
        let text = unsafe { slice::from_raw_parts(text.cast::<u8>(), len) };
        // The text is always UTF-8, because any other text is refused when the setting is written.
        f(from_utf8(text).unwrap_or_default())
    }

    /// Returns a number that changes with each change of a setting of this network namespace. May
    /// be called in any context.
    pub(crate) fn changes(&self, net: &Net) -> u32 {
        // SAFETY: By the type invariant, the texts are registered. The namespace is referenced.
        unsafe { bindings::xprtrdma_settings_changes(net.as_raw()) }
    }

    /// Sets the text of a setting, as a write to the setting's file does.
    #[cfg(xprtrdma_kunit)]
    pub(crate) fn set(&self, net: &Net, setting: Setting, text: &[u8]) -> Result {
        // SAFETY: By the type invariant, the settings are registered. The namespace is referenced.
        // `text` has `text.len()` readable bytes.
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
        // SAFETY: By the type invariant, the settings are registered. The called function waits
        // until no thread reads or writes the files.
        unsafe { bindings::xprtrdma_unregister_settings() };
        // ORDERING: Pairs with the atomic exchange of `REGISTERED` in `register`, so that the next
        // registration begins only after the end of this registration.
        REGISTERED.store(false, Release);
    }
}

/// Locks the settings of a namespace against changes until this object is dropped.
struct Held<'a>(&'a Net);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: Only `Settings::read` creates this value, after locking the settings. The same
        // thread drops the value.
        unsafe { bindings::xprtrdma_release_settings(self.0.as_raw()) };
    }
}

/// Checks a text that is about to be set.
fn check<C: Check>(setting: Setting, text: &[u8]) -> Result {
    let text = from_utf8(text).ok().filter(|text| text.len() <= LONGEST);
    let Some(text) = text else {
        if may_log() {
            // LOG: The text of a setting is too long, or is not in UTF-8.
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
    // SAFETY: By this function's contract `text` has `len` bytes. The pointer is not null, even if
    // `len` is zero.
    let text = unsafe { slice::from_raw_parts(text.cast::<u8>(), len) };
    from_result(|| {
        check::<C>(Setting::of(setting)?, text)?;
        Ok(0)
    })
}
