// SPDX-License-Identifier: GPL-2.0

//! A transport class, registered while a [`Registration`] lives.

use crate::{
    ops::Ops,
    service::Service, //
};
use core::marker::PhantomData;
use kernel::{
    error::to_result,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// The registration of the module's one transport class, for driver `S`.
///
/// # Invariants
///
/// The class is registered while the value exists.
pub struct Registration<S: Service>(PhantomData<S>);

impl<S: Service> Registration<S> {
    /// Registers the class "rdma" (ident 256) for driver `S`. May sleep.
    ///
    /// `EEXIST`: another module owns the class.
    pub fn new() -> Result<Self> {
        let class = &raw mut bindings::svcrdma_class;
        // SAFETY: The class belongs to this module and is not registered: a second registration
        // of it fails with `EEXIST` before anything is changed but this same pointer.
        unsafe { (*class).xcl_ops = &Ops::<S>::LISTENER };
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::svc_reg_xprt_class(class) })?;
        // INVARIANT: Registered just now.
        Ok(Self(PhantomData))
    }
}

impl<S: Service> Drop for Registration<S> {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant. Transports hold references to the module, so
        // none exists when it is unloaded.
        unsafe { bindings::svc_unreg_xprt_class(&raw mut bindings::svcrdma_class) };
    }
}
