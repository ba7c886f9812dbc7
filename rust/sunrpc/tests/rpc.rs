// SPDX-License-Identifier: GPL-2.0

//! The code with which the tests use the RPC client: it creates transports and clients, and calls
//! procedures.

use super::{
    driver::{
        self,
        Driver, //
    },
    ensure::Test,
    wait::wait_until, //
};
use crate::{
    class::Registration,
    xprt::Xprt, //
};
use core::{
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::Relaxed, //
};
use xprtrdma_bindings as bindings;

/// Waits until no transport exists.
pub(super) fn wait_gone() -> Result {
    wait_until(|| driver::DRIVERS.load(Relaxed) == 0 && driver::CALLS.load(Relaxed) == 0)
}

/// Returns the number of times that copies of a call's pages were freed since the last call of this
/// function.
pub(super) fn releases() -> i32 {
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_releases() }
}

/// Returns true if all bytes of the memory for a request's reply are zero.
///
/// # Safety
///
/// The request is pending.
pub(super) unsafe fn is_zero(rqst: *mut bindings::rpc_rqst) -> bool {
    // SAFETY: By this function's contract the request is pending, so its reply buffer exists.
    unsafe { bindings::fake_is_zero(&raw const (*rqst).rq_rcv_buf) }
}

/// A transport without a client.
///
/// # Invariants
///
/// The class created the transport, which is destroyed on drop.
pub(super) struct Lone(NonNull<bindings::rpc_xprt>);

impl Lone {
    pub(super) fn new(ipv6: bool, port: u16) -> Result<Self> {
        // SAFETY: A registration of the class for `Driver` has set the setup function, which stays
        // set after the class is unregistered.
        let raw = from_err_ptr(unsafe { bindings::fake_setup(ipv6, port) })?;
        // INVARIANT: The transport was created above.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }

    /// Creates a transport for a server whose address is of this address family (`AF_*`).
    pub(super) fn of_family(family: u16) -> Result<Self> {
        // SAFETY: A registration of the class for `Driver` has set the setup function, which stays
        // set after the class is unregistered.
        let raw = from_err_ptr(unsafe { bindings::fake_setup_family(family) })?;
        // INVARIANT: The transport was created above.
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }

    pub(super) fn xprt(&self) -> &Xprt<Driver> {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { Xprt::from_raw(self.0) }
    }

    /// Returns the server's address as a text in the format `which`.
    pub(super) fn name(&self, which: bindings::rpc_display_format_t) -> &str {
        // SAFETY: By the type invariant, the pointer is valid.
        let name = unsafe { bindings::fake_xprt_name(self.0.as_ptr(), which) };
        // SAFETY: The C string exists until the transport is destroyed or the transport's port
        // changes.
        let name = unsafe { CStr::from_char_ptr(name) };
        name.to_str().unwrap_or("?")
    }

    pub(super) fn set_port(&mut self, port: u16) {
        // SAFETY: By the type invariant, the pointer is valid. No thread connects the transport.
        unsafe { bindings::fake_set_port(self.0.as_ptr(), port) }
    }

    /// Returns the local address as text. The buffer for the text has `room` bytes.
    pub(super) fn source(&self, room: usize) -> Result<KVec<u8>> {
        let mut buf = KVec::from_elem(0xffu8, room, GFP_KERNEL)?;
        // SAFETY: By the type invariant, the pointer is valid. The buffer has `buf.len()` bytes.
        let len =
            unsafe { bindings::fake_source(self.0.as_ptr(), buf.as_mut_ptr().cast(), buf.len()) };
        to_result(len)?;
        buf.truncate(len as usize);
        Ok(buf)
    }

    /// Drops the reference of the transport's last user.
    pub(super) fn leave(&self) {
        // SAFETY: By the type invariant, the pointer is valid. The remaining steps of the
        // destruction happen in `drop`.
        unsafe { bindings::fake_leave(self.0.as_ptr()) }
    }

    /// Drops the reference of the transport's last user while a callback is delivered and the
    /// connection is being closed. The RPC client then destroys the transport. Returns `ETIMEDOUT`
    /// if the delivery waits until the connection is closed.
    pub(super) fn leave_amid_delivery(self) -> Result {
        /// # Safety
        ///
        /// `xprt` is a transport of this class.
        unsafe extern "C" fn deliver(xprt: *mut bindings::rpc_xprt) {
            // SAFETY: By this function's contract `xprt` is a transport of this class.
            let xprt = unsafe { Xprt::<Driver>::from_raw(NonNull::new_unchecked(xprt)) };
            // If no callback is delivered, the test fails.
            let _ = xprt.deliver_callback(&[7; 40]);
        }

        // SAFETY: By the type invariant, the pointer is valid. The callee destroys the transport,
        // as the drop of `self` would.
        let result = unsafe { bindings::fake_leave_amid(self.0.as_ptr(), Some(deliver)) };
        core::mem::forget(self);
        to_result(result)
    }

    pub(super) fn start_callbacks(&self) -> Result {
        // SAFETY: By the type invariant, the pointer is valid.
        to_result(unsafe { bindings::fake_start_callbacks(self.0.as_ptr()) })
    }

    /// Returns the maximum number of callbacks in progress, which the RPC client obtains from the
    /// transport.
    pub(super) fn callback_slots(&self) -> u32 {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::fake_callback_slots(self.0.as_ptr()) }
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the pointer is valid. The transport is not used again.
        unsafe { bindings::fake_destroy(self.0.as_ptr()) }
    }
}

/// The memory of a call.
pub(super) struct Memory {
    pages: KVec<*mut kernel::bindings::page>,
    io: bindings::fake_io,
}

impl Memory {
    /// Creates memory of `len` bytes, which begin `base` bytes after the start of the first page.
    /// If `sparse` is true, the pages are not allocated yet.
    pub(super) fn new(base: usize, len: usize, sparse: bool) -> Result<KBox<Self>> {
        let mut pages = KVec::new();
        for _ in 0..(base + len).div_ceil(PAGE_SIZE) {
            let page = if sparse {
                core::ptr::null_mut()
            } else {
                // SAFETY: The call has no requirements.
                unsafe { bindings::fake_page() }
            };
            pages.push(page, GFP_KERNEL)?;
        }
        let io = bindings::fake_io {
            pages: pages.as_mut_ptr(),
            base: base as u32,
            len: len as u32,
            sparse,
            ..Default::default()
        };
        Ok(KBox::new(Self { pages, io }, GFP_KERNEL)?)
    }

    /// Marks the pages as the data item of a READ.
    pub(super) fn of_read(mut self: KBox<Self>) -> KBox<Self> {
        self.io.read_data = true;
        self
    }

    /// Makes the expected head of the reply longer by this number of words, after the memory for
    /// the reply was allocated.
    pub(super) fn with_longer_head(mut self: KBox<Self>, words: u32) -> KBox<Self> {
        self.io.longer = words;
        self
    }

    /// Makes the client send copies of the pages. The copies are freed when the call is encoded
    /// again or ends.
    pub(super) fn wrapped(mut self: KBox<Self>) -> KBox<Self> {
        self.io.wrapped = true;
        self
    }

    /// Returns how many bytes of the reply have arrived.
    pub(super) fn got(&self) -> usize {
        self.io.got as usize
    }

    /// Returns byte `at` of the call's pages.
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        let at = at + self.io.base as usize;
        let page = *self.pages.get(at / PAGE_SIZE)?;
        if page.is_null() {
            return None;
        }
        // SAFETY: The page belongs to this object.
        Some(unsafe {
            *bindings::fake_page_address(page)
                .cast::<u8>()
                .add(at % PAGE_SIZE)
        })
    }

    /// Sets byte `at` of the call's pages.
    pub(super) fn set(&mut self, at: usize, value: u8) {
        let at = at + self.io.base as usize;
        if let Some(page) = self.pages.get(at / PAGE_SIZE) {
            // SAFETY: The page belongs to this object, and no call uses it yet.
            unsafe {
                *bindings::fake_page_address(*page)
                    .cast::<u8>()
                    .add(at % PAGE_SIZE) = value
            };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for page in &self.pages {
            if !page.is_null() {
                // SAFETY: The page belongs to this object, and the call that used it has ended.
                unsafe { bindings::fake_page_free(*page) }
            }
        }
    }
}

/// An RPC client with its own transport.
///
/// # Invariants
///
/// The client is valid until it is dropped. The drop waits until the client's calls have ended.
pub(super) struct Client(NonNull<bindings::rpc_clnt>);

impl Client {
    /// Creates a client. If `soft` is true, calls without a reply fail after half a second.
    pub(super) fn new(soft: bool) -> Result<Self> {
        Self::create(soft, false)
    }

    /// Creates a client that behaves like an NFSv4 client. Such a client repeats a call only on a
    /// new connection, and closes the current connection first.
    pub(super) fn of_nfs4() -> Result<Self> {
        Self::create(false, true)
    }

    fn create(soft: bool, nfs4: bool) -> Result<Self> {
        // SAFETY: The class is registered.
        let raw = from_err_ptr(unsafe { bindings::fake_clnt(soft, nfs4) })?;
        Ok(Self(NonNull::new(raw).ok_or(EINVAL)?))
    }

    pub(super) fn xprt(&self) -> &Xprt<Driver> {
        // SAFETY: The client keeps its transport, which belongs to this class.
        unsafe {
            let raw = bindings::fake_clnt_xprt(self.0.as_ptr());
            Xprt::from_raw(NonNull::new_unchecked(raw))
        }
    }

    fn call(&self, proc: bindings::fake_proc, memory: Option<KBox<Memory>>) -> Result<Pending<'_>> {
        let mut memory = memory;
        let io = memory
            .as_mut()
            .map_or(core::ptr::null_mut(), |m| &raw mut m.io);
        // SAFETY: `Pending` keeps the memory until the call has ended.
        let raw = from_err_ptr(unsafe { bindings::fake_call(self.0.as_ptr(), proc, io) })?;
        Ok(Pending {
            client: self,
            task: Some(NonNull::new(raw).ok_or(EINVAL)?),
            memory,
        })
    }

    /// Starts a call without data.
    pub(super) fn null(&self) -> Result<Pending<'_>> {
        self.call(bindings::fake_proc_FAKE_PROC_NULL, None)
    }

    /// Starts a thread that makes a synchronous call without data, as a process does.
    pub(super) fn process(&self) -> Result<Process<'_>> {
        // SAFETY: By the type invariant, the pointer is valid. `Process` ends before the client.
        let raw = from_err_ptr(unsafe { bindings::fake_process(self.0.as_ptr()) })?;
        Ok(Process {
            client: self,
            thread: Some(NonNull::new(raw).ok_or(EINVAL)?),
        })
    }

    /// Starts a call that sends this memory.
    pub(super) fn put(&self, memory: KBox<Memory>) -> Result<Pending<'_>> {
        self.call(bindings::fake_proc_FAKE_PROC_PUT, Some(memory))
    }

    /// Starts a call whose reply fills this memory.
    pub(super) fn get(&self, memory: KBox<Memory>) -> Result<Pending<'_>> {
        self.call(bindings::fake_proc_FAKE_PROC_GET, Some(memory))
    }

    /// Ends all calls that have a slot. The calls end as they do after a signal.
    pub(super) fn kill(&self) {
        // SAFETY: By the type invariant, the pointer is valid.
        unsafe { bindings::fake_kill(self.0.as_ptr()) }
    }

    /// Waits until the driver has received at least `count` calls and keeps them without a reply.
    pub(super) fn wait_kept(&self, count: usize) -> Result {
        wait_until(|| self.xprt().data().kept() >= count)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the pointer is valid. The client is not used again.
        unsafe { bindings::fake_clnt_end(self.0.as_ptr()) }
    }
}

/// The only client of a test, together with the transport class that was registered for the test.
/// Initially all steps of the driver succeed and all counts are zero.
pub(super) struct Alone {
    client: Client,
    // The transport class is dropped after the client, because the client's transport uses it.
    class: Registration<Driver>,
}

impl Alone {
    pub(super) fn new() -> Result<Self> {
        Self::with(|| Client::new(false))
    }

    /// Creates a client whose calls fail if they get no reply; see [`Client::new`].
    pub(super) fn soft() -> Result<Self> {
        Self::with(|| Client::new(true))
    }

    /// Creates a client that behaves like an NFSv4 client; see [`Client::of_nfs4`].
    pub(super) fn of_nfs4() -> Result<Self> {
        Self::with(Client::of_nfs4)
    }

    fn with(client: impl FnOnce() -> Result<Client>) -> Result<Self> {
        driver::calm();
        let class = Registration::new()?;
        Ok(Self {
            client: client()?,
            class,
        })
    }

    /// Drops the client. Then waits until no transport exists, and drops the class.
    pub(super) fn end(self) -> Test {
        drop(self.client);
        wait_gone()?;
        drop(self.class);
        Ok(())
    }
}

impl Deref for Alone {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A thread with a call in flight. Dropping this object kills the call and waits until the thread
/// has ended.
pub(super) struct Process<'a> {
    client: &'a Client,
    thread: Option<NonNull<kernel::bindings::task_struct>>,
}

impl Process<'_> {
    fn end(&mut self) -> Result {
        match self.thread.take() {
            // SAFETY: No code has waited for the thread yet.
            Some(thread) => to_result(unsafe { bindings::fake_process_end(thread.as_ptr()) }),
            None => Ok(()),
        }
    }

    /// Returns the result of the call.
    pub(super) fn wait(mut self) -> Result {
        self.end()
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.client.kill();
        let _ = self.end();
    }
}

/// A call in flight. Dropping this object kills all calls of the client, and waits for the end of
/// this call.
pub(super) struct Pending<'a> {
    client: &'a Client,
    task: Option<NonNull<bindings::rpc_task>>,
    memory: Option<KBox<Memory>>,
}

impl Pending<'_> {
    fn end(&mut self) -> Result {
        match self.task.take() {
            // SAFETY: No code has waited for the task yet.
            Some(task) => to_result(unsafe { bindings::fake_wait(task.as_ptr()) }),
            None => Ok(()),
        }
    }

    /// Returns the result of the call.
    pub(super) fn wait(mut self) -> Result {
        self.end()
    }

    /// Returns the memory of the call if the call succeeded, or else the error of the call.
    pub(super) fn memory(mut self) -> Result<KBox<Memory>> {
        self.end()?;
        self.memory.take().ok_or(EINVAL)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            // Only calls with a slot are killed. A waiting call that takes the slot of a killed
            // call is killed in a later round.
            let _ = wait_until(|| {
                self.client.kill();
                // SAFETY: No code has waited for the task yet.
                unsafe { bindings::fake_is_over(task.as_ptr()) }
            });
            let _ = self.end();
        }
    }
}
