// SPDX-License-Identifier: GPL-2.0

//! A client that repeats a Call whose memory cannot be accessed.

use core::net::{
    IpAddr,
    Ipv4Addr, //
};

use crate::common::XID;
use xprtrdma_proto::{
    responder::{
        breakers::{
            self,
            Breakers,
            OfClient,
            CLIENTS,
            FORGOTTEN,
            REMEMBERED, //
        },
        refusal::Fault, //
    },
    time::Time,
    Xid, //
};

fn at(seconds: u64) -> Time {
    Time::from_millis(1000 * seconds)
}

/// Returns the fault for which the Call with this xid is refused at the time `now`, if any.
fn found(breakers: &Breakers, xid: u32, now: Time) -> Option<Fault> {
    breakers.check(Xid(xid), now).err()
}

// covers: RSP-112
#[test]
fn a_call_that_broke_two_connections_gets_an_error() {
    let mut breakers = Breakers::default();
    assert_eq!(found(&breakers, XID, at(0)), None);
    breakers.broke(Xid(XID), at(1));
    assert_eq!(found(&breakers, XID, at(1)), None);
    breakers.broke(Xid(XID), at(2));
    assert_eq!(found(&breakers, XID, at(2)), Some(Fault::Breaks));
    assert_eq!(found(&breakers, XID ^ 1, at(2)), None);
    // The responder refuses the Call each time that it arrives, until the responder forgets the
    // failures of the Call.
    let forgotten = at(2).after(FORGOTTEN);
    let before = Time::from_millis(2000 + FORGOTTEN.get() - 1);
    assert_eq!(found(&breakers, XID, before), Some(Fault::Breaks));
    assert_eq!(found(&breakers, XID, forgotten), None);
    breakers.broke(Xid(XID), forgotten);
    assert_eq!(found(&breakers, XID, forgotten), None);
    for _ in 0..1000 {
        breakers.broke(Xid(XID), forgotten);
    }
    assert_eq!(found(&breakers, XID, forgotten), Some(Fault::Breaks));
}

#[test]
fn the_calls_seen_last_are_remembered() {
    let mut breakers = Breakers::default();
    let many = REMEMBERED as u32;
    for xid in 0..many {
        breakers.broke(Xid(xid), at(u64::from(xid)));
        breakers.broke(Xid(xid), at(u64::from(xid)));
    }
    let refused = |breakers: &Breakers| {
        let refused = |xid: &u32| found(breakers, *xid, at(100)).is_some();
        (0..many + 1).filter(refused).collect::<Vec<u32>>()
    };
    assert_eq!(refused(&breakers), (0..many).collect::<Vec<u32>>());
    // The first Call fails again, so the failure of the second Call becomes the oldest failure.
    // When another Call fails, the responder therefore forgets the second Call.
    breakers.broke(Xid(0), at(50));
    breakers.broke(Xid(many), at(60));
    breakers.broke(Xid(many), at(60));
    let expected: Vec<u32> = [0].into_iter().chain(2..many + 1).collect();
    assert_eq!(refused(&breakers), expected);
}

/// The address of a client.
fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number).into()
}

/// Returns the fault for which a Call of this client is refused at the time `now`, if any.
fn of(clients: &[Option<OfClient>], number: u8, xid: u32, now: Time) -> Option<Fault> {
    breakers::check(clients, client(number), Xid(xid), now).err()
}

#[test]
fn a_call_of_another_client_is_another_call() {
    let mut clients = [None; CLIENTS];
    assert!(breakers::are_forgotten(&clients, at(0)));
    for second in 1..=2 {
        breakers::broke(&mut clients, client(1), Xid(XID), at(second));
    }
    assert_eq!(of(&clients, 1, XID, at(2)), Some(Fault::Breaks));
    assert_eq!(of(&clients, 2, XID, at(2)), None);
    breakers::broke(&mut clients, client(2), Xid(XID), at(3));
    assert_eq!(of(&clients, 2, XID, at(3)), None);
    assert_eq!(of(&clients, 1, XID, at(3)), Some(Fault::Breaks));
    let forgotten = at(3).after(FORGOTTEN);
    assert!(!breakers::are_forgotten(&clients, at(3)));
    assert!(!breakers::are_forgotten(&clients, at(2).after(FORGOTTEN)));
    assert!(breakers::are_forgotten(&clients, forgotten));
}

#[test]
fn the_clients_seen_last_are_remembered() {
    let mut clients = [None; CLIENTS];
    let many = CLIENTS as u8;
    for number in 0..many {
        for _ in 0..2 {
            breakers::broke(&mut clients, client(number), Xid(XID), at(number.into()));
        }
    }
    // A Call of the first client fails again. So the failure of the second client's Call is now the
    // oldest one. The responder forgets it when a Call of a further client fails.
    breakers::broke(&mut clients, client(0), Xid(0), at(50));
    for _ in 0..2 {
        breakers::broke(&mut clients, client(many), Xid(XID), at(60));
    }
    let refused = |number: &u8| of(&clients, *number, XID, at(60)).is_some();
    let expected: Vec<u8> = [0].into_iter().chain(2..=many).collect();
    assert_eq!((0..=many).filter(refused).collect::<Vec<u8>>(), expected);
}
