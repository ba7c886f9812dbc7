// SPDX-License-Identifier: GPL-2.0

//! Several rails that use the same port or the same device.

use std::net::IpAddr;
use xprtrdma_proto::{
    rail::{
        table::{
            Locals,
            Servers, //
        },
        Local,
        Name,
        Pairs,
        Probed,
        Rails,
        Seat,
        Standing, //
    },
    time::Time, //
};

const NOW: Time = Time::from_millis(1_000_000);

/// Returns a list of four rails, and the [`Seat`] of a connection that uses the first rail. Two
/// rails begin at port 1 of the device `a`, because the server has two addresses in that network.
/// One rail begins at port 2 of `a`, and one at the device `b`.
fn four() -> (Rails, Seat) {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let end = |addr, device, port| Local {
        addr: ip(addr),
        prefix_len: 24,
        device: Name::new(device).unwrap(),
        port,
    };
    let ends = [
        end("192.0.2.2", "a", 1),
        end("198.51.100.2", "a", 2),
        end("203.0.113.2", "b", 1),
    ];
    let servers = Servers::parse("192.0.2.1=192.0.2.9=198.51.100.1=203.0.113.1").unwrap();
    let auto = Locals::parse("auto").unwrap();
    let pairs = Pairs::new(ends.into_iter(), &auto, ip("192.0.2.1"), &servers);
    let mut rails = Rails::new(1);
    rails.update(&pairs, NOW);
    assert_eq!(rails.how_many(), 4);
    let seat = rails.adopt(ip("192.0.2.2"), ip("192.0.2.1"), NOW).unwrap();
    (rails, seat)
}

/// Returns a text for each dead rail: the device, the port, and the last number of the server's
/// address.
fn dead(rails: &Rails) -> Vec<String> {
    let views = rails.views(NOW);
    let dead = views.filter(|view| view.standing == Standing::Dead);
    dead.map(|view| {
        let server = view.rail.server.to_string();
        let last = server.rsplit('.').next().unwrap();
        format!("{}{}-{last}", view.rail.device.as_str(), view.rail.port)
    })
    .collect()
}

// Rails: if a port goes down, all rails of the port are dead. If the device fails, the rails of its
// other port are dead, too.
#[test]
fn a_port_takes_all_its_rails_along() {
    for (whole_device, expected) in [
        (false, &["a1-1", "a1-9"][..]),
        (true, &["a1-1", "a1-9", "a2-1"]),
    ] {
        let (mut rails, seat) = four();
        assert!(rails.port_failed(&seat, whole_device, NOW));
        assert_eq!(dead(&rails), expected);
        // The next attempt uses a rail that still works.
        let (seat, choice) = rails.take(Some(seat), true, NOW).unwrap();
        assert!(choice.at_once);
        assert!(!whole_device || choice.rail.device.as_str() == "b");
        assert!(choice.rail.device.as_str() == "b" || choice.rail.port == 2);
        rails.leave(seat);
    }
}

// Rails: a connection leaves a failed port only if a rail of another port is live.
#[test]
fn another_rail_of_the_same_port_does_not_help() {
    let (mut rails, seat) = four();
    for other in ["198.51.100.2", "203.0.113.2"] {
        rails.port_down(other.parse().unwrap(), NOW);
    }
    assert!(!rails.port_failed(&seat, false, NOW));
    rails.leave(seat);
}

// Rails: if the port of a connection works again, all rails of the port are probed soon, except for
// the rail that the connection uses.
#[test]
fn a_port_that_works_again_has_its_other_rails_probed() {
    let (mut rails, seat) = four();
    rails.port_failed(&seat, true, NOW);
    assert!(rails.probe(NOW).is_none());
    rails.port_works(&seat, NOW);
    let (probe, rail) = rails.probe(NOW).unwrap();
    assert_eq!(rail.server, "192.0.2.9".parse::<IpAddr>().unwrap());
    rails.probed(probe, Probed::NotTried, NOW);
    assert!(rails.probe(NOW).is_none());
    rails.leave(seat);
}
