// SPDX-License-Identifier: GPL-2.0

//! What a test says when something is not as it should be. Other than a failed `assert!` of KUnit,
//! which ends the thread where it stands, these return: everything the test holds is dropped.

use core::panic::Location;
use kernel::prelude::*;

/// A test's result.
pub(crate) type Test<T = ()> = core::result::Result<T, Failure>;

/// Why a test failed; the log has the place.
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

/// Ends the test with an error unless the first is at least the second.
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

/// Ends the test with an error unless both are equal.
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
