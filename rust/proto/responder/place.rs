// SPDX-License-Identifier: GPL-2.0

//! Tables of fixed size, in which a new entry replaces the oldest one if the table is full.

/// Returns the slot for a new entry. The slot is chosen in this order of preference:
///
/// 1. the slot of an entry for which `is_own` returns true,
/// 2. a free slot,
/// 3. the slot of the oldest entry, for which `last` returns the lowest value.
///
/// Returns `None` if the table has no slots.
pub(crate) fn place_for<T, K: Ord>(
    table: &mut [Option<T>],
    is_own: impl Fn(&T) -> bool,
    last: impl Fn(&T) -> K,
) -> Option<&mut Option<T>> {
    table.iter_mut().min_by_key(|place| match place {
        Some(one) if is_own(one) => (0, None),
        Some(one) => (2, Some(last(one))),
        None => (1, None),
    })
}
