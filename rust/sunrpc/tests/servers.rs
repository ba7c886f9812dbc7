// SPDX-License-Identifier: GPL-2.0

//! Tests of the state that all transports to one server share.

use super::ensure::Test;
use crate::servers::{
    Server,
    Servers, //
};
use core::net::{
    Ipv4Addr,
    SocketAddr,
    SocketAddrV4, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

const NET: u32 = 4026531840;

/// Returns a reference to the number that belongs to one server. All references to the server share
/// the number, which is initially zero.
fn share(servers: &Arc<Servers>, net: u32, peer: SocketAddr) -> Result<Server<Atomic<u64>>> {
    let fresh = Arc::new(Atomic::new(0u64), GFP_KERNEL)?;
    Server::new(servers, net, peer, fresh)
}

fn get(server: &Server<Atomic<u64>>) -> Option<u64> {
    Some(server.shared()?.load(Relaxed))
}

fn set(server: &Server<Atomic<u64>>, value: u64) {
    if let Some(data) = server.shared() {
        data.store(value, Relaxed);
    }
}

fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), port).into()
}

#[kunit_tests(xprtrdma_servers)]
mod suite {
    use super::*;

    #[test]
    fn the_object_is_of_one_server_and_goes_with_its_last_share() -> Test {
        let servers = Servers::new()?;
        for _ in 0..3 {
            let first = share(&servers, NET, address(1, 20049))?;
            let second = share(&servers, NET, address(1, 20049))?;
            let others = [
                share(&servers, NET, address(2, 20049))?,
                share(&servers, NET, address(1, 2049))?,
                share(&servers, NET + 1, address(1, 20049))?,
            ];
            ensure_eq!(get(&first), Some(0));
            ensure_eq!(first.peer(), address(1, 20049));
            set(&first, 7);
            ensure_eq!(get(&second), Some(7));
            ensure!(others.iter().all(|other| get(other) == Some(0)));
            drop(first);
            set(&second, 8);
            let third = share(&servers, NET, address(1, 20049))?;
            drop(second);
            ensure_eq!(get(&third), Some(8));
            let mistaken =
                Server::new(&servers, NET, address(1, 20049), Arc::new(0u8, GFP_KERNEL)?)?;
            ensure!(mistaken.shared().is_none());
            // All references are dropped at the end of a round, so the next round starts without
            // references.
        }
        Ok(())
    }
}
