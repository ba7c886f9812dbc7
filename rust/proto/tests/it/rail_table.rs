// SPDX-License-Identifier: GPL-2.0

//! Tests of the texts with which an administrator configures rails, and of the error messages about
//! mistakes in these texts.

use std::net::IpAddr;
use xprtrdma_proto::{
    rail::{
        table::{
            Locals,
            Pick,
            Servers,
            MAX_LOCALS,
            MAX_SERVERS, //
        },
        Local,
        Name,
        Pairs,
        Rails, //
    },
    time::Time, //
};

// Rails: `off` is the default. A list of rails, in any of its forms, selects exactly the rails that
// it names.
#[test]
fn a_list_admits_what_it_names() {
    let ends = [
        local("192.0.2.2", "rxe0", 1),
        local("198.51.100.2", "rxe1", 1),
        local("2001:db8::2", "rxe1", 2),
    ];
    for (text, admitted) in [
        ("", [false, false, false]),
        (" \n", [false, false, false]),
        ("off\n", [false, false, false]),
        ("auto", [true, true, true]),
        ("192.0.2.2", [true, false, false]),
        ("rxe1\n", [false, true, true]),
        ("rxe1/2", [false, false, true]),
        ("rxe1/1,192.0.2.2", [true, true, false]),
        ("2001:DB8:0::2, rxe0/7", [false, false, true]),
        ("rxe", [false, false, false]),
    ] {
        let locals = Locals::parse(text).unwrap();
        assert_eq!(
            locals.is_off(),
            !text.contains(char::is_alphanumeric) || text == "off\n"
        );
        assert_eq!(
            ends.each_ref().map(|end| locals.admits(end)),
            admitted,
            "{text}"
        );
    }
    assert_eq!(Locals::parse("").unwrap(), Locals::OFF);
}

// Rails: the error message for an invalid list of rails shows the entry that is invalid, and says
// why.
#[test]
fn a_wrong_local_end_is_refused_with_a_sentence() {
    let long = "x".repeat(64);
    let cut = format!("\"{}...\" is neither", "x".repeat(48));
    for (text, told) in [
        ("10.0.0.0.1a", None),
        ("192.0.2.256", Some("\"192.0.2.256\" is neither")),
        ("300.1.1.1", Some("\"300.1.1.1\" is neither")),
        ("192.0.2", Some("\"192.0.2\" is neither")),
        ("7", Some("\"7\" is neither")),
        ("-_.", Some("\"-_.\" is neither")),
        ("10.0.0.0.1/1", Some("\"10.0.0.0.1/1\" is neither")),
        (
            "rxe0 192.0.2.2/24",
            Some("\"192.0.2.2/24\" has a slash behind an address, which stands alone"),
        ),
        ("2001:db8::2/64", Some("\"2001:db8::2/64\" has a slash")),
        ("192.0.2.2/", Some("\"192.0.2.2/\" has a slash")),
        (
            "rxe0 rxe1/x",
            Some("\"rxe1/x\" has no number from 1 behind the slash"),
        ),
        ("rxe0/0", Some("\"rxe0/0\" has no number")),
        ("rxe0/", Some("\"rxe0/\" has no number")),
        ("rxe0/4294967296", Some("\"rxe0/4294967296\" has no number")),
        (
            "/1",
            Some("\"/1\" is neither an address nor the name of an RDMA device"),
        ),
        ("rxe0, fe80::1%eth0", Some("\"fe80::1%eth0\" is neither")),
        ("fe80::1", Some("\"fe80::1\" is a link-local address")),
        (
            "224.0.0.1",
            Some("\"224.0.0.1\" is not the address of one host"),
        ),
        ("ff02::1", Some("\"ff02::1\" is not")),
        ("0.0.0.0", Some("\"0.0.0.0\" is not")),
        ("::", Some("\"::\" is not")),
        ("255.255.255.255", Some("\"255.255.255.255\" is not")),
        ("::ffff:192.0.2.1", Some("\"::ffff:192.0.2.1\" is not")),
        ("rxe0 auto", Some("\"auto\" cannot be in a list")),
        (
            "auto rxe0",
            Some("\"rxe0\" cannot be in a list with \"off\" or \"auto\""),
        ),
        ("off,off", Some("\"off\" cannot be in a list")),
        ("rxe0 rxe1 rxe0", Some("\"rxe0\" is there twice")),
        (
            "2001:db8::1 2001:DB8::0:1",
            Some("\"2001:DB8::0:1\" is there twice"),
        ),
        ("rxe\u{e9}", Some("\"rxe??\" is neither")),
        ("rxe\u{7}", Some("\"rxe?\" is neither")),
        (&long, Some(&cut)),
    ] {
        let refusal = Locals::parse(text).err().map(|refusal| refusal.to_string());
        match (refusal, told) {
            (Some(refusal), Some(told)) => assert!(refusal.starts_with(told), "{refusal}"),
            (refusal, told) => assert_eq!(refusal.is_some(), told.is_some(), "{text}"),
        }
    }
}

// Rails: a group lists the addresses of one server. For each address of a group, the table returns
// the other addresses of the group. For an address that is in no group, the table returns nothing.
#[test]
fn a_group_tells_the_other_addresses_of_a_server() {
    let text = "192.0.2.1=198.51.100.1=2001:db8::1 203.0.113.1=203.0.113.2\n";
    let servers = Servers::parse(text).unwrap();
    for (of, others) in [
        ("192.0.2.1", vec!["198.51.100.1", "2001:db8::1"]),
        ("198.51.100.1", vec!["192.0.2.1", "2001:db8::1"]),
        ("2001:db8::1", vec!["192.0.2.1", "198.51.100.1"]),
        ("203.0.113.2", vec!["203.0.113.1"]),
        ("203.0.113.3", vec![]),
    ] {
        let found: Vec<IpAddr> = servers.others(ip(of)).collect();
        let others: Vec<IpAddr> = others.into_iter().map(ip).collect();
        assert_eq!(found, others);
        assert_eq!(Servers::NONE.others(ip(of)).count(), 0);
    }
    assert_eq!(Servers::parse(" ,\n").unwrap(), Servers::NONE);
}

// Rails: an invalid group of server addresses is refused. The client may send data to each address
// of a group, so a wrong address could lead the data to another server.
#[test]
fn a_wrong_group_is_refused_with_a_sentence() {
    for (text, told) in [
        ("192.0.2.1", "\"192.0.2.1\" is no group of addresses"),
        ("192.0.2.1=", "\"192.0.2.1=\" is no IP address"),
        ("=192.0.2.1", "\"=192.0.2.1\" is no IP address"),
        ("192.0.2.1=server", "\"server\" is no IP address"),
        ("192.0.2.1=192.0.2.1", "\"192.0.2.1\" is there twice"),
        (
            "192.0.2.1=192.0.2.2 192.0.2.3=192.0.2.2",
            "\"192.0.2.2\" is there twice",
        ),
        ("192.0.2.1=fe80::1", "\"fe80::1\" is a link-local address"),
        (
            "192.0.2.1=0.0.0.0",
            "\"0.0.0.0\" is not the address of one host",
        ),
        ("off", "\"off\" is no group"),
    ] {
        let refusal = Servers::parse(text).unwrap_err().to_string();
        assert!(refusal.starts_with(told), "{refusal}");
    }
}

// Rails: the tables have limited space. If a text has too many entries, the error message names the
// limit.
#[test]
fn full_tables_are_read_and_fuller_ones_refused() {
    let locals = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("rxe{n}")).collect();
        Locals::parse(&names.join(" "))
    };
    let full = locals(MAX_LOCALS).unwrap();
    assert!((0..MAX_LOCALS).all(|n| full.admits(&local("192.0.2.2", &format!("rxe{n}"), 1))));
    let told = locals(MAX_LOCALS + 1).unwrap_err().to_string();
    assert_eq!(told, "\"rxe16\" is too much: there is room for 16");
    let servers = |count: usize| {
        let pair = |n| format!("192.0.2.{n}=198.51.100.{n}");
        let pairs: Vec<String> = (1..=count).map(pair).collect();
        Servers::parse(&pairs.join(","))
    };
    let full = servers(MAX_SERVERS / 2).unwrap();
    assert_eq!(
        full.others(ip("198.51.100.32")).collect::<Vec<_>>(),
        [ip("192.0.2.32")]
    );
    let told = servers(MAX_SERVERS / 2 + 1).unwrap_err().to_string();
    assert_eq!(told, "\"192.0.2.33\" is too much: there is room for 64");
}

#[test]
fn a_device_has_a_name_of_1_to_63_bytes() {
    for len in 0..70 {
        let text = "n".repeat(len);
        let name = Name::new(&text);
        assert_eq!(name.is_some(), (1..64).contains(&len));
        assert!(name.is_none_or(|name| name.as_str() == text));
    }
}

// Rails: the log names two kinds of mistakes in the tables: an entry that matches no address or
// device of this host, and a server address to which no rail leads.
#[test]
fn what_names_nothing_is_told() {
    let ends = [
        local("192.0.2.2", "rxe0", 1),
        local("198.51.100.2", "rxe1", 2),
    ];
    for (text, absent) in [
        ("off", vec![]),
        ("auto", vec![]),
        ("192.0.2.2 rxe1 rxe1/2", vec![]),
        ("foo", vec!["foo"]),
        (
            "192.0.2.2 rxe0 nosuch0 192.0.2.9 rxe1/1",
            vec!["nosuch0", "192.0.2.9", "rxe1/1"],
        ),
    ] {
        let locals = Locals::parse(text).unwrap();
        let found = locals.absent(ends.iter().copied()).map(|pick| match pick {
            Pick::Addr(addr) => addr.to_string(),
            Pick::Device(name, None) => name.as_str().to_string(),
            Pick::Device(name, Some(port)) => format!("{}/{port}", name.as_str()),
        });
        assert_eq!(found.collect::<Vec<_>>(), absent, "{text}");
    }
    let auto = Locals::parse("auto").unwrap();
    for (text, rails, reached) in [
        ("", 2, false),
        ("192.0.2.1=198.51.100.1", 2, true),
        ("192.0.2.1=203.0.113.1", 2, false),
        ("192.0.2.7=198.51.100.1", 2, false),
    ] {
        let (mount, servers) = (ip("192.0.2.1"), Servers::parse(text).unwrap());
        let pairs = Pairs::new(ends.iter().copied(), &auto, mount, &servers);
        let mut found = Rails::new(1);
        assert_eq!((found.how_many(), found.lead_to(mount)), (0, false));
        found.update(&pairs, Time::default());
        assert_eq!((found.how_many(), found.lead_to(mount)), (rails, true));
        assert_eq!(found.lead_to(ip("198.51.100.1")), reached, "{text}");
        assert!(!found.lead_to(ip("203.0.113.1")));
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn local(addr: &str, device: &str, port: u32) -> Local {
    Local {
        addr: ip(addr),
        prefix_len: 24,
        device: Name::new(device).unwrap(),
        port,
    }
}
