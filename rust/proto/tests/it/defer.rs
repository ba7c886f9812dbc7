// SPDX-License-Identifier: GPL-2.0

//! An item that waits for space in a queue is always posted, in whatever order the steps of the
//! threads run.

use std::{
    cell::{
        Cell,
        RefCell, //
    },
    collections::VecDeque, //
};
use xprtrdma_proto::defer::{
    self,
    PostQueue, //
};

/// The number of entries in the queue.
const DEPTH: u32 = 4;
/// The number of queue entries that each of the four posted items uses.
const SIZES: [u32; 4] = [2, 1, 3, 2];

/// A send queue and its users. A user is a thread that posts items or handles completions. Before
/// each step of one user, another user may run. `script` determines before which steps another user
/// runs.
struct World {
    script: Cell<u32>,
    nested: Cell<u32>,
    /// Items that were posted and have not completed, in the order of posting.
    queue: RefCell<VecDeque<u32>>,
    wants_room: Cell<bool>,
    /// Whether a completion is being handled. Completions are handled one at a time.
    handling: Cell<bool>,
    list: RefCell<Vec<u16>>,
    /// The items of tasks that have not started.
    coming: RefCell<Vec<u16>>,
    posted: RefCell<Vec<u16>>,
}

impl World {
    /// Returns a simulated send queue, which is full of items that other users posted.
    fn new(script: u32) -> Self {
        Self {
            script: Cell::new(script),
            nested: Cell::new(0),
            queue: RefCell::new(vec![1; DEPTH as usize].into()),
            wants_room: Cell::new(false),
            handling: Cell::new(false),
            list: RefCell::default(),
            coming: RefCell::new((0..SIZES.len() as u16).collect()),
            posted: RefCell::default(),
        }
    }

    fn room(&self) -> u32 {
        DEPTH - self.queue.borrow().iter().sum::<u32>()
    }

    /// Starts a task, which posts or defers its item.
    fn task(&self) {
        let item = self.coming.borrow_mut().pop();
        if let Some(item) = item {
            defer::post(self, item);
        }
    }

    /// Completes the oldest item in the send queue.
    fn completion(&self) {
        if self.handling.get() || self.queue.borrow_mut().pop_front().is_none() {
            return;
        }
        self.handling.set(true);
        if self.wants_room.take() {
            defer::resume(self);
        }
        self.handling.set(false);
    }

    /// Called before each step of a thread. At this point another thread may run.
    fn others(&self) {
        let choice = self.script.get() % 3;
        self.script.set(self.script.get() / 3);
        self.nested.set(self.nested.get() + 1);
        match choice {
            1 => self.completion(),
            2 if self.nested.get() < 4 => self.task(),
            _ => {}
        }
        self.nested.set(self.nested.get() - 1);
    }
}

impl PostQueue for World {
    fn post(&self, item: u16) -> bool {
        self.others();
        let size = SIZES[usize::from(item)];
        let fits = size <= self.room();
        if fits {
            self.queue.borrow_mut().push_back(size);
            self.posted.borrow_mut().push(item);
        } else {
            self.wants_room.set(true);
        }
        fits
    }

    fn has_room(&self, item: u16) -> bool {
        self.others();
        let fits = SIZES[usize::from(item)] <= self.room();
        if !fits {
            self.wants_room.set(true);
        }
        fits
    }

    fn defer(&self, item: u16) {
        self.others();
        self.list.borrow_mut().push(item);
    }

    fn next_deferred(&self) -> Option<u16> {
        self.others();
        self.list.borrow_mut().pop()
    }
}

// No announcement of free space is lost, even if another thread runs between any two steps of a
// thread. After the scripted steps nothing new is posted, and only completions happen. So after a
// lost announcement, the deferred items would never be posted.
#[test]
fn whatever_waits_is_posted() {
    let mut deferred = 0;
    for script in 0..3u32.pow(12) {
        let world = World::new(script);
        while !world.coming.borrow().is_empty() {
            world.task();
        }
        deferred += usize::from(!world.list.borrow().is_empty());
        while !world.queue.borrow().is_empty() {
            world.completion();
        }
        let mut posted = world.posted.take();
        posted.sort();
        assert_eq!((script, posted), (script, vec![0, 1, 2, 3]));
        assert!(world.list.take().is_empty());
    }
    assert!(deferred > 0);
}
