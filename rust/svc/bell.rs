// SPDX-License-Identifier: GPL-2.0

//! Reports the events of a listener to the RPC server ([`Bell`]).

use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::{
    new_spinlock,
    spin::SpinLock, //
};
use xprtrdma_bindings as bindings;

/// Tells the RPC server that connection requests wait at a listener, or that the listener's device
/// is being removed.
///
/// Events may be reported before the RPC server knows the listener, and after the RPC server has
/// forgotten the listener.
#[derive(Clone)]
pub struct Bell(Arc<Shared>);

#[pin_data]
struct Shared {
    #[pin]
    wire: SpinLock<Wire>,
}

/// # Invariants
///
/// The transport of `Connected` is valid.
enum Wire {
    /// The RPC server does not know the listener yet.
    Loose {
        /// Whether an event was reported before the RPC server knew the listener.
        rung: bool,
        /// Whether the RPC server must close the listener.
        closing: bool,
    },
    Connected(NonNull<bindings::svc_xprt>),
    Cut,
}

// SAFETY: Any thread may call the functions that take the transport of `Connected`.
unsafe impl Send for Wire {}

impl Bell {
    pub(crate) fn new() -> Result<Self> {
        let shared = pin_init!(Shared {
            wire <- new_spinlock!(Wire::Loose { rung: false, closing: false }, "Bell::wire"),
        });
        Ok(Self(Arc::pin_init(shared, GFP_KERNEL)?))
    }

    /// Wakes a thread of the RPC server, which then accepts the connection requests that wait at
    /// the listener. Process context; does not sleep.
    pub fn ring(&self) {
        let mut wire = self.0.wire.lock();
        match &mut *wire {
            Wire::Loose { rung, .. } => *rung = true,
            Wire::Connected(xprt) => {
                // SAFETY: By the type invariant the transport is valid as long as the lock is held.
                unsafe { bindings::svcrdma_set_flag(xprt.as_ptr(), bindings::XPT_CONN) };
                // SAFETY: By the type invariant the transport is valid. The called function may be
                // used in any context.
                unsafe { bindings::svc_xprt_enqueue(xprt.as_ptr()) };
            }
            Wire::Cut => {}
        }
    }

    /// Wakes a thread of the RPC server, which then closes and forgets the listener. Process
    /// context; does not sleep.
    pub fn close(&self) {
        let mut wire = self.0.wire.lock();
        match &mut *wire {
            Wire::Loose { closing, .. } => *closing = true,
            Wire::Connected(xprt) => {
                // SAFETY: By the type invariant the transport is valid as long as the lock is held.
                // The called function may be used in any context.
                unsafe { bindings::svc_xprt_deferred_close(xprt.as_ptr()) };
            }
            Wire::Cut => {}
        }
    }

    /// Connects the [`Bell`] to the transport of a listener that will be passed to the RPC server.
    ///
    /// # Safety
    ///
    /// `xprt` is the listener's transport. It stays valid until [`Bell::cut`] is called.
    pub(crate) unsafe fn connect(&self, xprt: NonNull<bindings::svc_xprt>) {
        let mut wire = self.0.wire.lock();
        if let Wire::Loose { rung, closing } = *wire {
            for (wanted, flag) in [(rung, bindings::XPT_CONN), (closing, bindings::XPT_CLOSE)] {
                if wanted {
                    // The event came before the RPC server knew the listener. The RPC server checks
                    // `flag` when it receives the listener.
                    // SAFETY: By this function's contract the transport is valid.
                    unsafe { bindings::svcrdma_set_flag(xprt.as_ptr(), flag) };
                }
            }
        }
        // INVARIANT: By this function's contract the transport is valid.
        *wire = Wire::Connected(xprt);
    }

    /// Disconnects the [`Bell`] from the listener. Afterwards reported events have no effect, and
    /// the [`Bell`] does not use the transport any more.
    pub(crate) fn cut(&self) {
        *self.0.wire.lock() = Wire::Cut;
    }
}
