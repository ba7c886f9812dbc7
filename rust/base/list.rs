// SPDX-License-Identifier: GPL-2.0

//! Operations on lists that usually have space for another element, or usually contain only one
//! element ([`add`], [`push`], [`make_room`], [`end`],
//! [`take_first`]).

use kernel::{
    alloc::{
        Allocator,
        Vec, //
    },
    prelude::*, //
};

/// Adds an element to a list. Allocates memory, and may sleep, only if the list is full.
///
/// Unlike `KVec::push` this is inlined, so that the element is made directly in the memory of the
/// list.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::list::{add, make_room, push, take_first};
/// fn example() -> Result {
///     let mut list = KVec::new();
///     // The first of these calls allocates, so the second does not.
///     make_room(&mut list)?;
///     add(&mut list, 1)?;
///     assert_eq!(take_first(&mut list), Some(1));
///     // The list still has the memory for an element.
///     assert_eq!(push(&mut list, 2), Ok(()));
///     Ok(())
/// }
/// ```
#[inline(always)]
pub fn add<T>(list: &mut KVec<T>, value: T) -> Result {
    make_room(list)?;
    push(list, value).map_err(|_| ENOMEM)
}

/// Adds an element to a list. Returns the element if the list is full.
///
/// Unlike `KVec::push_within_capacity` this is inlined.
#[inline(always)]
pub fn push<T, A: Allocator>(list: &mut Vec<T, A>, value: T) -> Result<(), T> {
    let len = list.len();
    if len == list.capacity() {
        return Err(value);
    }
    // SAFETY: The list has space for an element after its last element.
    unsafe { list.as_mut_ptr().add(len).write(value) };
    // SAFETY: The element after the last element of the list was initialised above.
    unsafe { list.inc_len(1) };
    Ok(())
}

/// Returns the address after the last element of a list.
#[inline(always)]
pub fn end<T>(list: &mut KVec<T>) -> *mut T {
    let len = list.len();
    list.as_mut_ptr().wrapping_add(len)
}

/// Makes space for one more element, unless the list has free space. May sleep.
#[inline(always)]
pub fn make_room<T>(list: &mut KVec<T>) -> Result {
    match list.len() == list.capacity() {
        true => grow(list),
        false => Ok(()),
    }
}

/// Makes space for one more element.
#[cold]
#[inline(never)]
fn grow<T>(list: &mut KVec<T>) -> Result {
    Ok(list.reserve(1, GFP_KERNEL)?)
}

/// Removes the first element of a list. If there is no other element, no memory is moved.
#[inline(always)]
pub fn take_first<T>(list: &mut KVec<T>) -> Option<T> {
    match list.len() {
        0 | 1 => list.pop(),
        _ => list.remove(0).ok(),
    }
}
