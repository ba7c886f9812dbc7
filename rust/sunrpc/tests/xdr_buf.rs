// SPDX-License-Identifier: GPL-2.0

//! Tests of [`XdrBytes`], a view of a message. The tests read messages of many forms, from every
//! offset to the last byte.

use super::ensure::Test;
use crate::xdr_buf::{
    KnownPage,
    Part,
    XdrBytes, //
};
use core::iter;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_base::lend::Piece;
use xprtrdma_bindings as bindings;

/// Columns: number of bytes in the head, offset of the data in the pages, number of data bytes in
/// the pages, number of bytes in the tail.
type Shape = (usize, usize, usize, usize);

/// A message in which the value of each byte is the offset of the byte, modulo 251.
struct Message {
    raw: bindings::xdr_buf,
    len: usize,
    _head: KVec<u8>,
    _tail: KVec<u8>,
    pages: KVec<*mut kernel::bindings::page>,
}

impl Message {
    fn new((head, base, data, tail): Shape) -> Result<Self> {
        // CAST: The remainder is less than 251.
        let byte = |at: usize| (at % 251) as u8;
        let fill = |from: usize, len: usize| -> Result<KVec<u8>> {
            // The memory is never empty, so that it has an address.
            let mut out = KVec::with_capacity(len.max(1), GFP_KERNEL)?;
            for i in 0..len {
                out.push(byte(from + i), GFP_KERNEL)?;
            }
            Ok(out)
        };
        let mut this = Self {
            raw: bindings::xdr_buf::default(),
            len: head + data + tail,
            _head: fill(0, head)?,
            _tail: fill(head + data, tail)?,
            pages: KVec::new(),
        };
        for _ in 0..(base + data).div_ceil(PAGE_SIZE) {
            // SAFETY: The call has no requirements.
            let page = unsafe { bindings::fake_page() };
            this.pages.push(page, GFP_KERNEL)?;
            ensure!(!page.is_null());
        }
        for i in 0..data {
            let at = base + i;
            let page = *this.pages.get(at / PAGE_SIZE).ok_or(EINVAL)?;
            // SAFETY: The page belongs to this object.
            unsafe {
                *bindings::fake_page_address(page)
                    .cast::<u8>()
                    .add(at % PAGE_SIZE) = byte(head + i)
            };
        }
        this.raw.head[0].iov_base = this._head.as_mut_ptr().cast();
        this.raw.head[0].iov_len = head;
        this.raw.tail[0].iov_base = this._tail.as_mut_ptr().cast();
        this.raw.tail[0].iov_len = tail;
        this.raw.pages = this.pages.as_mut_ptr();
        this.raw.page_base = base as u32;
        this.raw.page_len = data as u32;
        this.raw.len = this.len as u32;
        this.raw.buflen = this.len as u32;
        Ok(this)
    }

    fn view(&self) -> XdrBytes<'_> {
        // SAFETY: The message does not change while `self` is borrowed.
        unsafe { XdrBytes::from_raw(&self.raw) }
    }

    /// Returns the bytes of a part from `start` on, as a device would read them.
    fn pieces(&self, part: Part, start: usize) -> Result<KVec<u8>> {
        let mut out = KVec::new();
        let mut result = Ok(());
        self.view().pieces(part, start, |piece| {
            result = result.and(bytes(&piece, &mut out));
            true
        });
        result?;
        Ok(out)
    }
}

/// Appends the bytes of a piece to `out`.
fn bytes(piece: &Piece<'_>, out: &mut KVec<u8>) -> Result {
    let (mut offset, mut left) = (piece.first, piece.len);
    let last = piece.more.len();
    for (i, page) in Iterator::chain(iter::once(&piece.page), piece.more).enumerate() {
        // A piece may be longer than its listed pages. In this case the rest of the piece directly
        // follows the last listed page in memory.
        let here = if i < last { PAGE_SIZE - offset } else { left };
        // SAFETY: The piece is part of this object's memory, which is in the linear mapping.
        let bytes = unsafe {
            let first = bindings::fake_page_address(*page).cast::<u8>();
            core::slice::from_raw_parts(first.add(offset), here)
        };
        out.extend_from_slice(bytes, GFP_KERNEL)?;
        left -= here;
        offset = 0;
    }
    Ok(())
}

impl Drop for Message {
    fn drop(&mut self) {
        for page in &self.pages {
            if !page.is_null() {
                // SAFETY: The page belongs to this object.
                unsafe { bindings::fake_page_free(*page) }
            }
        }
    }
}

const SHAPES: [Shape; 9] = [
    (100, 0, 0, 0),
    (100, 0, 0, 40),
    (100, 0, 1, 0),
    (100, 0, PAGE_SIZE, 4),
    (28, 17, 5000, 3),
    (28, PAGE_SIZE - 1, 2, 8),
    (0, 5, 3 * PAGE_SIZE, 0),
    (5000, 100, PAGE_SIZE - 100, 0),
    (1, PAGE_SIZE + 3, 1, 1),
];

/// Returns true if the bytes are equal to the bytes of a message from offset `start` on.
fn numbered(bytes: &[u8], start: usize) -> bool {
    bytes
        .iter()
        .enumerate()
        .all(|(i, byte)| usize::from(*byte) == (start + i) % 251)
}

/// Returns the offsets at and next to the borders of parts and pages, where errors are most likely.
fn borders((head, base, data, tail): Shape) -> [usize; 9] {
    let first = PAGE_SIZE - base % PAGE_SIZE;
    [
        0,
        1,
        head.saturating_sub(1),
        head,
        head + 1,
        (head + first).min(head + data),
        (head + data).saturating_sub(1),
        head + data,
        (head + data + tail).saturating_sub(1),
    ]
    .map(|at| at.min(head + data + tail))
}

#[kunit_tests(xprtrdma_xdr_buf)]
mod suite {
    use super::*;

    #[test]
    fn a_view_knows_its_sizes() -> Test {
        for shape in SHAPES {
            let (head, base, data, tail) = shape;
            let message = Message::new(shape)?;
            let view = message.view();
            ensure_eq!(
                (view.head_len(), view.page_len(), view.tail_len()),
                (head, data, tail)
            );
            ensure_eq!(view.len(), head + data + tail);
            ensure_eq!(view.capacity(), head + data + tail);
            ensure_eq!(view.page_offset(), base % PAGE_SIZE);
            ensure_eq!(view.part_len(Part::Pages), data);
            ensure_eq!(view.part_len(Part::Whole), head + data + tail);
            ensure_eq!(view.is_empty(), head + data + tail == 0);
            ensure!(!view.is_read_data() && !view.is_write_data());
        }
        Ok(())
    }

    #[test]
    fn every_range_reads_as_it_was_written() -> Test {
        for shape in SHAPES {
            let message = Message::new(shape)?;
            for from in borders(shape) {
                for to in borders(shape) {
                    if from > to {
                        continue;
                    }
                    let mut out = KVec::from_elem(0xffu8, to - from, GFP_KERNEL)?;
                    message.view().read(from, &mut out)?;
                    if !numbered(&out, from) {
                        pr_err!("{shape:?}: {from}..{to}\n");
                        return Err(EINVAL.into());
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn nothing_reads_beyond_the_end() -> Test {
        for shape in SHAPES {
            let message = Message::new(shape)?;
            let mut out = [0u8; 8];
            for from in [
                message.len - 1,
                message.len,
                message.len + 1,
                usize::MAX - 3,
            ] {
                ensure!(message.view().read(from, &mut out).is_err());
            }
        }
        Ok(())
    }

    #[test]
    fn pieces_are_the_message() -> Test {
        for shape in SHAPES {
            let (head, _, data, _) = shape;
            let message = Message::new(shape)?;
            for start in borders(shape) {
                let whole = message.pieces(Part::Whole, start)?;
                if whole.len() != message.len - start || !numbered(&whole, start) {
                    pr_err!("{shape:?} from {start}: {} bytes\n", whole.len());
                    return Err(EINVAL.into());
                }
                let pages = message.pieces(Part::Pages, start)?;
                ensure_eq!(pages.len(), data.saturating_sub(start));
                ensure!(numbered(&pages, head + start));
            }
            ensure!(message.pieces(Part::Whole, message.len)?.is_empty());
        }
        Ok(())
    }

    #[test]
    fn an_array_has_the_pages_of_its_piece() -> Test {
        for shape in SHAPES {
            let message = Message::new(shape)?;
            for start in borders(shape) {
                let mut right = true;
                message.view().pieces(Part::Pages, start, |piece| {
                    right &= piece.len != 0 && piece.first < PAGE_SIZE;
                    let count = (piece.first + piece.len).div_ceil(PAGE_SIZE);
                    right &= piece.more.len() == count - 1;
                    true
                });
                ensure!(right);
            }
        }
        Ok(())
    }

    #[test]
    fn an_only_piece_is_all_of_its_part() -> Test {
        let mut found = 0;
        // `known` caches the page of one address. All messages of this test share the cache. So
        // when a message is read, the cache contains the page of an earlier message's head.
        let known = KnownPage::none();
        for shape in SHAPES {
            let message = Message::new(shape)?;
            for part in [Part::Pages, Part::Whole, Part::Whole] {
                if let Some(piece) = message.view().only_piece(part, &known) {
                    let mut all = KVec::new();
                    bytes(&piece, &mut all)?;
                    ensure_eq!(all[..], message.pieces(part, 0)?[..]);
                    found += 1;
                }
            }
        }
        ensure!(found != 0);
        Ok(())
    }
}
