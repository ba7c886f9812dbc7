// SPDX-License-Identifier: GPL-2.0

//! The transport classes, which are registered while a [`Registration`] exists.

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
use xprtrdma_base::unloading;
use xprtrdma_bindings as bindings;

/// The registration of the module's two transport classes for driver `S`: one for connections, and
/// one for transports that send calls to clients.
///
/// Listeners and connections may exist as soon as this object exists. So creating it must be the
/// last step of loading the module that can fail, and it must be dropped only when the module is
/// unloaded. If this object is dropped earlier, the drop logs a warning and sleeps for ever.
///
/// # Invariants
///
/// The classes are registered while this object exists.
pub struct Registration<S: Service> {
    // Rust drops the fields after `drop` has unregistered the classes. So the files in debugfs
    // exist as long as the classes.
    _table: Table,
    _files: files::Owner,
    _service: PhantomData<S>,
}

impl<S: Service> Registration<S> {
    /// Registers the class "rdma" (ident 256) for driver `S`, and the class of transports that send
    /// calls to clients (ident 256 with the highest bit set). May sleep.
    ///
    /// Returns `EEXIST` if another module owns one of the classes, and `EBUSY` if another
    /// registration exists.
    pub fn new() -> Result<Self> {
        let files = files::Owner::new()?;
        let reverse = &raw mut bindings::svcrdma_reverse_class;
        // SAFETY: The class belongs to this module. While `files` exists there is no other
        // registration, so the class is not registered, and no other thread uses it.
        unsafe { (*reverse).setup = Some(Ops::<S>::setup) };
        // This class is registered before the first connection exists. Otherwise another module
        // could register a class with the same number, and would treat this module's connections as
        // its own connections.
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::xprt_register_transport(reverse) })?;
        let guard = ScopeGuard::new(|| {
            // SAFETY: The class was registered above, and no connection has used it.
            unsafe { bindings::xprt_unregister_transport(reverse) };
        });
        let class = &raw mut bindings::svcrdma_class;
        // SAFETY: The class belongs to this module. While `files` exists there is no other
        // registration, so the class is not registered, and no other thread uses it.
        unsafe { (*class).xcl_ops = &Ops::<S>::LISTENER };
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::svc_reg_xprt_class(class) })?;
        guard.dismiss();
        // INVARIANT: Both classes were registered above.
        Ok(Self {
            _table: Table::register(&S::SIZES),
            _files: files,
            _service: PhantomData,
        })
    }
}

impl<S: Service> Drop for Registration<S> {
    fn drop(&mut self) {
        unloading::begin();
        // SAFETY: By the type invariant, the class is registered. No transport exists: it would
        // hold a reference to the module, and a module with references is not unloaded.
        unsafe { bindings::svc_unreg_xprt_class(&raw mut bindings::svcrdma_class) };
        // SAFETY: By the type invariant, the class is registered. No transport exists: it would
        // hold a reference to the module, and a module with references is not unloaded.
        unsafe { bindings::xprt_unregister_transport(&raw mut bindings::svcrdma_reverse_class) };
    }
}
