// SPDX-License-Identifier: GPL-2.0

//! Operations on lists that usually have space for another element, or usually contain only one
//! element ([`add`], [`make_room`], [`take_first`]).

use kernel::prelude::*;

/// Adds an element to a list. Allocates memory, and may sleep, only if the list is full.
///
/// Unlike `KVec::push` this is inlined, so that the element is made directly in the memory of the
/// list.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::list::{add, make_room, take_first};
/// fn example() -> Result {
///     let mut list = KVec::new();
///     // The first of these calls allocates, so the second does not.
///     make_room(&mut list)?;
///     add(&mut list, 1)?;
///     assert_eq!(take_first(&mut list), Some(1));
///     Ok(())
/// }
/// ```
#[inline(always)]
pub fn add<T>(list: &mut KVec<T>, value: T) -> Result {
    make_room(list)?;
    let place = list.spare_capacity_mut().first_mut().ok_or(ENOMEM)?;
    place.write(value);
    // SAFETY: The first element of the spare capacity was initialised above.
    unsafe { list.inc_len(1) };
    Ok(())
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
