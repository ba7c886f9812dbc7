// SPDX-License-Identifier: GPL-2.0

//! What the transports of one server share.

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
use kernel::prelude::*;

const NET: u32 = 4026531840;

fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), port).into()
}

#[kunit_tests(xprtrdma_servers)]
mod suite {
    use super::*;

    #[test]
    fn the_word_is_of_one_server_and_goes_with_its_last_share() -> Test {
        let servers = Servers::new()?;
        for _ in 0..3 {
            let first = Server::new(&servers, NET, address(1, 20049))?;
            let second = Server::new(&servers, NET, address(1, 20049))?;
            let others = [
                Server::new(&servers, NET, address(2, 20049))?,
                Server::new(&servers, NET, address(1, 2049))?,
                Server::new(&servers, NET + 1, address(1, 20049))?,
            ];
            ensure_eq!(first.get(), 0);
            ensure_eq!(first.peer(), address(1, 20049));
            first.set(7);
            ensure_eq!(second.get(), 7);
            ensure!(others.iter().all(|other| other.get() == 0));
            drop(first);
            second.set(8);
            let third = Server::new(&servers, NET, address(1, 20049))?;
            drop(second);
            ensure_eq!(third.get(), 8);
            // The next round finds nothing of this.
        }
        Ok(())
    }
}
