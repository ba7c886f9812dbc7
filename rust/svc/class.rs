// SPDX-License-Identifier: GPL-2.0

//! The transport classes, registered while a [`Registration`] lives.

use crate::{
    files,
    ops::Ops,
    service::Service,
    sysctl::Table, //
};
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*,
    types::ScopeGuard, //
};
use xprtrdma_bindings as bindings;

/// The registration of the module's transport classes, for driver `S`: that of connections, and
/// that of transports that lead to their clients.
///
/// # Invariants
///
/// The classes are registered while the value exists.
pub struct Registration<S: Service> {
    // Dropped after the classes are unregistered.
    _table: Table,
    _files: files::Owner,
    _service: PhantomData<S>,
}

impl<S: Service> Registration<S> {
    /// Registers the class "rdma" (ident 256) for driver `S`, and the class of transports to
    /// clients (ident 256 with the highest bit). May sleep.
    ///
    /// `EEXIST`: another module owns one of them. `EBUSY`: there is a registration.
    pub fn new() -> Result<Self> {
        let files = files::Owner::new()?;
        let reverse = &raw mut bindings::svcrdma_reverse_class;
        // SAFETY: As for the other class below.
        unsafe { (*reverse).setup = Some(Ops::<S>::setup) };
        // Before there is a connection: another module would take ours for one of its own.
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::xprt_register_transport(reverse) })?;
        let guard = ScopeGuard::new(|| {
            // SAFETY: Registered just now, and no connection has asked for it.
            unsafe { bindings::xprt_unregister_transport(reverse) };
        });
        let class = &raw mut bindings::svcrdma_class;
        // SAFETY: The class belongs to this module and is not registered: a second registration
        // of it fails with `EEXIST` before anything is changed but this same pointer.
        unsafe { (*class).xcl_ops = &Ops::<S>::LISTENER };
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::svc_reg_xprt_class(class) })?;
        guard.dismiss();
        // INVARIANT: Registered just now.
        Ok(Self {
            _table: Table::register(&S::SIZES),
            _files: files,
            _service: PhantomData,
        })
    }
}

impl<S: Service> Drop for Registration<S> {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant. Transports hold references to the module, so
        // none exists when it is unloaded.
        unsafe { bindings::svc_unreg_xprt_class(&raw mut bindings::svcrdma_class) };
        // SAFETY: As above.
        unsafe { bindings::xprt_unregister_transport(&raw mut bindings::svcrdma_reverse_class) };
    }
}
