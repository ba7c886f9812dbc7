// SPDX-License-Identifier: GPL-2.0

//! Macros that end a test with an error. A failed `assert!` of KUnit ends the thread immediately.
//! These macros return from the test instead, so everything that the test owns is dropped.

use core::panic::Location;
use kernel::prelude::*;

/// The result of a test.
pub(crate) type Test<T = ()> = core::result::Result<T, Failure>;

/// The error of a failed test. The log shows the file and the line.
#[derive(Debug)]
pub(crate) struct Failure;

impl<E: Into<Error>> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let at = Location::caller();
        pr_err!("{}:{}: {:?}\n", at.file(), at.line(), error.into());
        Self
    }
}

/// Ends the test with an error unless the condition holds.
macro_rules! ensure {
    ($cond:expr) => {
        if !$cond {
            pr_err!("{}:{}: not so: {}\n", file!(), line!(), stringify!($cond));
            return Err(EINVAL.into());
        }
    };
}

/// Ends the test with an error unless the first value is at least the second.
macro_rules! ensure_at_least {
    ($left:expr, $right:expr) => {
        match ($left, $right) {
            (left, right) => {
                if left < right {
                    let text = stringify!($left);
                    pr_err!("{}:{}: {text}: {left}, not {right}\n", file!(), line!());
                    return Err(EINVAL.into());
                }
            }
        }
    };
}

/// Ends the test with an error unless both values are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {
        match (&$left, &$right) {
            (left, right) => {
                if *left != *right {
                    let text = stringify!($left);
                    pr_err!("{}:{}: {text}: {left:?}, not {right:?}\n", file!(), line!());
                    return Err(EINVAL.into());
                }
            }
        }
    };
}
