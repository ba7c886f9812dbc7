// SPDX-License-Identifier: GPL-2.0

//! The memory of one RPC message ([`XdrBuf`], [`XdrBytes`]): a head, an array of pages, and a tail.

use core::{
    cell::Cell,
    marker::PhantomData,
    ops::Deref,
    ptr::{self, NonNull},
    slice, //
};
use kernel::{
    bindings::{
        kvec,
        page, //
    },
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_base::lend::Piece;
use xprtrdma_bindings as bindings;

/// The parts of a message that can be lent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Only the pages of the message. They contain a data item that is sent separately.
    Pages,
    /// The whole message: head, pages and tail.
    Whole,
}

/// A view of a `struct xdr_buf`: the lengths and addresses of its parts.
///
/// The lengths of a reply may shrink while this view exists. The RPC client shortens the buffer
/// when it decodes the reply. The buffer is also shortened by
/// [`Pinned::place_around`](crate::call::Pinned::place_around). So each method reads a word only
/// once, as `READ_ONCE()` does.
///
/// # Invariants
///
/// The structure, its vectors and its pages stay valid while the view exists, and no length grows.
/// These conditions hold from the encoding of a request until its release, and views are created
/// only during this time.
#[derive(Clone, Copy)]
pub struct XdrBuf<'a>(NonNull<bindings::xdr_buf>, PhantomData<&'a ()>);

/// Reads one field of the `struct xdr_buf` of a view.
macro_rules! look {
    ($view:expr, $($member:tt)+) => {{
        let raw = $view.0.as_ptr();
        // SAFETY: By the type invariant of the view, the structure is valid.
        unsafe { ptr::read_volatile(&raw const (*raw).$($member)+) }
    }};
}

impl<'a> XdrBuf<'a> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *const bindings::xdr_buf) -> Self {
        // SAFETY: By the caller's contract `raw` is valid, so it is not null.
        let raw = unsafe { NonNull::new_unchecked(raw.cast_mut()) };
        // INVARIANT: The caller's contract guarantees the invariant.
        Self(raw, PhantomData)
    }

    /// Returns the length of the head. For a call the length is exact. For a reply the length is
    /// the maximum.
    #[inline]
    pub fn head_len(&self) -> usize {
        look!(self, head[0].iov_len)
    }

    /// Returns the number of bytes in the pages. For a call the number is exact. For a reply the
    /// number is the maximum.
    #[inline]
    pub fn page_len(&self) -> usize {
        look!(self, page_len) as usize
    }

    /// Returns the length of the tail. For a call the length is exact. For a reply the length is
    /// the maximum.
    #[inline]
    pub fn tail_len(&self) -> usize {
        look!(self, tail[0].iov_len)
    }

    /// Returns the length of the whole message in bytes. The result has a meaning only for a
    /// message that is to be sent.
    #[inline]
    pub fn len(&self) -> usize {
        look!(self, len) as usize
    }

    /// Returns the offset of the head in its page.
    #[inline]
    pub fn head_offset(&self) -> usize {
        look!(self, head[0].iov_base).addr() % PAGE_SIZE
    }

    /// Returns the offset at which the data begins in the first page.
    #[inline]
    pub fn page_offset(&self) -> usize {
        look!(self, page_base) as usize % PAGE_SIZE
    }

    /// Returns the offset of the tail in its page.
    #[inline]
    pub fn tail_offset(&self) -> usize {
        look!(self, tail[0].iov_base).addr() % PAGE_SIZE
    }

    /// Returns whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum length of a reply in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        look!(self, buflen) as usize
    }

    /// Returns whether the pages are the data item of a READ.
    #[inline]
    pub fn is_read_data(&self) -> bool {
        look!(self, flags) & bindings::XDRBUF_READ != 0
    }

    /// Returns whether the pages are the data item of a WRITE or of a symbolic link.
    #[inline]
    pub fn is_write_data(&self) -> bool {
        look!(self, flags) & bindings::XDRBUF_WRITE != 0
    }

    /// Returns the number of bytes in `part`.
    #[inline]
    pub fn part_len(&self, part: Part) -> usize {
        match part {
            Part::Pages => self.page_len(),
            // NO-OVERFLOW: The parts of a message all lie in memory, so the sum fits into a word.
            Part::Whole => {
                let pages = self.page_len().wrapping_add(self.tail_len());
                self.head_len().wrapping_add(pages)
            }
        }
    }

    /// Calls `take` with the pieces of `part`. See [`xprtrdma_base::lend::Loan::pieces`].
    #[inline]
    pub(crate) fn pieces(&self, part: Part, start: usize, mut take: impl FnMut(Piece<'_>) -> bool) {
        let mut skip = start;
        let _ = match part {
            Part::Pages => self.rest_of_pages(&mut skip, &mut take),
            Part::Whole => {
                rest_of(look!(self, head[0]), &mut skip, &mut take)
                    && self.rest_of_pages(&mut skip, &mut take)
                    && rest_of(look!(self, tail[0]), &mut skip, &mut take)
            }
        };
    }

    /// Returns the only piece of `part`, if `part` has only one piece. See
    /// [`Loan::only_piece`](xprtrdma_base::lend::Loan::only_piece).
    #[inline(always)]
    pub(crate) fn only_piece(&self, part: Part, known: &KnownPage) -> Option<Piece<'_>> {
        let pages = self.page_len();
        match part {
            Part::Pages if pages != 0 => Some(self.pages(0, pages)),
            Part::Whole if pages == 0 && self.tail_len() == 0 => {
                let head = look!(self, head[0]);
                if head.iov_len == 0 {
                    return None;
                }
                let addr = head.iov_base.cast::<u8>();
                // SAFETY: The head of an RPC message lies in the linear mapping.
                let page = unsafe { known.page_of(addr) };
                Some(piece_at(addr, head.iov_len, page))
            }
            _ => None,
        }
    }

    /// Skips the first `skip` bytes of the page data, and subtracts the number of skipped bytes
    /// from `skip`. Calls `take` with the piece that contains the remaining bytes, unless no bytes
    /// remain. Returns `false` if `take` returned `false`.
    #[inline]
    fn rest_of_pages(&self, skip: &mut usize, take: &mut impl FnMut(Piece<'_>) -> bool) -> bool {
        let page_len = self.page_len();
        let skipped = core::cmp::min(*skip, page_len);
        *skip -= skipped;
        let len = page_len - skipped;
        if len == 0 {
            return true;
        }
        take(self.pages(skipped, len))
    }

    /// Returns the piece of `len` bytes after the first `skipped` bytes of the page data. The page
    /// data has at least `skipped + len` bytes, and `len` is not zero.
    #[inline(always)]
    fn pages(&self, skipped: usize, len: usize) -> Piece<'_> {
        // NO-OVERFLOW: `page_base` has 32 bits, and `skipped` is at most the length of a buffer.
        let at = (look!(self, page_base) as usize).wrapping_add(skipped);
        let first = at % PAGE_SIZE;
        let pages = look!(self, pages);
        // SAFETY: By the type invariant, `pages` has an entry for each page of the message.
        let entry = unsafe { pages.add(at / PAGE_SIZE) };
        // NO-OVERFLOW: `first` is less than a page, and `len` is at most the length of a buffer.
        let end = first.wrapping_add(len);
        let more = if end <= PAGE_SIZE {
            &[]
        } else {
            let others = end.div_ceil(PAGE_SIZE).wrapping_sub(1);
            // SAFETY: By the type invariant, `pages` has an entry for each page of the message, and
            // `others` entries follow `entry`.
            unsafe { slice::from_raw_parts(entry.add(1), others) }
        };
        // SAFETY: By the type invariant, `pages` has an entry for each page of the message.
        let page = unsafe { *entry };
        Piece {
            page,
            more,
            first,
            len,
        }
    }
}

/// A view of a message that is to be sent. The bytes of the message do not change.
///
/// # Invariants
///
/// Lengths and bytes do not change while the view exists. The peer may be able to read the memory,
/// because an earlier encoding of the same request has lent the memory to it.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_sunrpc::{call::Call, transport::Transport, xdr_buf::{Part, XdrBuf, XdrBytes}};
/// /// Copies a call, but not the data item in its pages; returns how many bytes were copied.
/// fn copy<T: Transport>(call: &Call<'_, T>, out: &mut [u8]) -> Result<usize> {
///     let message: XdrBytes<'_> = call.message();
///     let (head, pages) = (message.head_len(), message.part_len(Part::Pages));
///     let inline = message.len() - pages;
///     let (before, behind) = out.get_mut(..inline).ok_or(EMSGSIZE)?.split_at_mut(head);
///     message.read(0, before)?;
///     message.read(head + pages, behind)?;
///     let reply: XdrBuf<'_> = call.reply();
///     pr_info!("the reply has {} bytes at most\n", reply.capacity());
///     Ok(inline)
/// }
/// ```
#[derive(Clone, Copy)]
pub struct XdrBytes<'a>(XdrBuf<'a>);

impl<'a> Deref for XdrBytes<'a> {
    type Target = XdrBuf<'a>;

    #[inline]
    fn deref(&self) -> &XdrBuf<'a> {
        &self.0
    }
}

impl XdrBytes<'_> {
    /// # Safety
    ///
    /// The type invariant must hold for the view's lifetime.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: *const bindings::xdr_buf) -> Self {
        // SAFETY: The caller's contract guarantees the invariants of both views.
        Self(unsafe { XdrBuf::from_raw(raw) })
    }

    /// Copies the bytes `from..from + out.len()` of the message to `out`. Does not sleep.
    #[inline(always)]
    pub fn read(&self, from: usize, out: &mut [u8]) -> Result {
        let head_len = self.head_len();
        // The range usually lies in the head.
        if from <= head_len && out.len() <= head_len.wrapping_sub(from) {
            let head = look!(self.0, head[0].iov_base).cast::<u8>();
            // SAFETY: The head is valid for `head_len` bytes, and `out` does not overlap the head.
            unsafe { ptr::copy_nonoverlapping(head.add(from), out.as_mut_ptr(), out.len()) };
            return Ok(());
        }
        self.read_any(from, out)
    }

    #[inline(never)]
    fn read_any(self, from: usize, out: &mut [u8]) -> Result {
        // SAFETY: The view is valid. The called function checks the range, and writes `out.len()`
        // bytes.
        let err = unsafe {
            bindings::read_bytes_from_xdr_buf(
                self.0 .0.as_ptr(),
                u32::try_from(from)?,
                out.as_mut_ptr().cast(),
                u32::try_from(out.len())?,
            )
        };
        kernel::error::to_result(err)
    }
}

/// A cache of one entry: the last translated address, and its page. The cache saves 10 instructions
/// per RPC. A slot keeps its buffers, so the cache usually contains the needed page.
///
/// The page of an address does not change while the memory is allocated. It never changes on
/// machines whose memory cannot be unplugged. It never changes on x86 and arm64 either, because
/// their map of all pages is one virtual array.
///
/// # Invariants
///
/// If the address is not null, `page` is the page of this address.
pub(crate) struct KnownPage(Cell<(*mut u8, *mut page)>);

impl KnownPage {
    pub(crate) const fn none() -> Self {
        Self(Cell::new((ptr::null_mut(), ptr::null_mut())))
    }

    /// # Safety
    ///
    /// `addr` is an address of the linear mapping.
    #[inline(always)]
    unsafe fn page_of(&self, addr: *mut u8) -> *mut page {
        let (known, page) = self.0.get();
        if known == addr && !known.is_null() {
            return page;
        }
        // SAFETY: By the caller's contract `addr` is in the linear mapping.
        unsafe { self.learn(addr) }
    }

    /// # Safety
    ///
    /// The contract is that of [`KnownPage::page_of`].
    #[cold]
    unsafe fn learn(&self, addr: *mut u8) -> *mut page {
        // SAFETY: By the caller's contract `addr` is in the linear mapping.
        let page = unsafe { bindings::xprtrdma_virt_to_page(addr.cast()) };
        // INVARIANT: `xprtrdma_virt_to_page` has just returned the page of this address.
        self.0.set((addr, page));
        page
    }
}

/// Skips the first `skip` bytes of `vector`, which is a part of an RPC message. Subtracts the
/// number of skipped bytes from `skip`. Calls `take` with the remaining bytes, unless no bytes
/// remain. Returns `false` if `take` returned `false`.
#[inline]
fn rest_of(vector: kvec, skip: &mut usize, take: &mut impl FnMut(Piece<'_>) -> bool) -> bool {
    let skipped = core::cmp::min(*skip, vector.iov_len);
    *skip -= skipped;
    skipped == vector.iov_len || take(piece_of(vector, skipped))
}

/// Returns the bytes of `vector` after the first `skipped` bytes. `vector` is a part of an RPC
/// message, and must have more than `skipped` bytes.
#[inline]
fn piece_of(vector: kvec, skipped: usize) -> Piece<'static> {
    let addr = vector.iov_base.cast::<u8>().wrapping_add(skipped);
    // SAFETY: The vectors of an RPC message lie in the linear mapping, because they were allocated
    // by `buf_alloc`, or are parts of pages that the security flavour allocated.
    let page = unsafe { bindings::xprtrdma_virt_to_page(addr.cast()) };
    // NO-OVERFLOW: By the caller's contract the vector has more than `skipped` bytes.
    piece_at(addr, vector.iov_len.wrapping_sub(skipped), page)
}

/// Returns the piece of `len` bytes at address `addr` of the linear mapping. The piece begins in
/// page `page`.
#[inline(always)]
fn piece_at(addr: *mut u8, len: usize, page: *mut page) -> Piece<'static> {
    Piece {
        page,
        more: &[],
        first: addr.addr() % PAGE_SIZE,
        len,
    }
}
