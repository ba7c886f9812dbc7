// SPDX-License-Identifier: GPL-2.0

//! The actions that wait for the driver, in order, without allocation.

use super::Action;

/// Room for every action of one attempt and connection, and the failure of the one before.
///
/// The steps of an attempt, `Established`, one `KeepAlive` and the final `Disconnect` are nine. The next
/// attempt needs a `TornDown`, which counts only after the final action was taken, and with it all before.
const ROOM: usize = 12;

/// A first-in, first-out queue of at most [`ROOM`] actions.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    slots: [Option<Action>; ROOM],
    lost: u32,
}

impl Queue {
    /// Appends `action` unless the same action already waits.
    pub(super) fn push(&mut self, action: Action) {
        let wanted = Some(action);
        for slot in &mut self.slots {
            if *slot == wanted {
                return;
            }
            if slot.is_none() {
                *slot = wanted;
                return;
            }
        }
        self.lost = self.lost.saturating_add(1);
    }

    /// Takes the oldest action.
    pub(super) fn pop(&mut self) -> Option<Action> {
        let action = self.slots.first_mut()?.take();
        self.slots.rotate_left(1);
        action
    }

    /// How many actions found no room.
    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }
}
