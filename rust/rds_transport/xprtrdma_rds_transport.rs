// SPDX-License-Identifier: GPL-2.0

//! The RDS driver, which carries the messages of RDS sockets over RDMA.
//!
//! The rules of the protocol are in `xprtrdma_rds_proto`. The interfaces to the kernel are in
//! `xprtrdma_rds` and `xprtrdma_rdma`. This crate connects the protocol with these interfaces.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`listener`] | connection requests of peers |
//! | [`service`] | the operations of RDS |
//! | [`endpoint`] | a queue pair that serves a connection, and how it is created |
//! | [`receive`] | completions: messages from the peer, and completed operations |
//! | [`send`] | messages and acknowledgements |
//! | [`operate`] | RDMA operations |
//! | [`link`] | the state of a connection while it has a queue pair |
//! | [`regions`] | the devices in use, their removal, and the regions that peers can access |
//! | [`events`] | the events that the connection manager reports |
//! | [`driver`], [`table`] | the driver, its devices and regions |
//! | [`sizes`] | sizes and limits |

#![forbid(unsafe_code)]

mod driver;
mod endpoint;
mod events;
mod link;
mod listener;
mod operate;
mod receive;
mod regions;
mod send;
mod service;
mod sizes;
mod table;

use crate::{
    driver::Rds,
    listener::Doorway, //
};
use core::net::{
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_rdma::stack;
use xprtrdma_rds::{
    registration::Registration,
    util::{
        version,
        EAFNOSUPPORT, //
    }, //
};
use xprtrdma_rds_proto::connect::{
    PORT_V4,
    PORT_V6, //
};

module! {
    type: RdsRdma,
    name: "rds_rdma_rs",
    authors: ["The xprtrdma_rs developers"],
    description: "RDS over RDMA",
    license: "GPL",
}

/// Dropping this object releases all devices of the driver.
struct Devices(Arc<Rds>);

impl Drop for Devices {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct RdsRdma {
    // The ports are dropped first, so that no peer connects to a driver that is being destroyed.
    _v4: Doorway,
    _v6: Option<Doorway>,
    _registration: Arc<Registration<Rds>>,
    // The devices are dropped after the registration of the transport. At that time no connection
    // exists any more.
    _devices: Devices,
}

impl kernel::Module for RdsRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if let Some(module) = stack::foreign() {
            // LOG: The module is not loaded: see "Other RDMA stacks" in the administrator's guide.
            pr_err!("{module} is not the kernel's own, with which this module was built\n");
            return Err(ENOEXEC);
        }
        let driver = Rds::new()?;
        let devices = Devices(driver.clone());
        let registration = Registration::new(driver.clone()).inspect_err(|e| {
            if *e == EBUSY {
                // LOG: The module is not loaded.
                pr_err!("rds_rdma is loaded: remove it first\n");
            }
        })?;
        let registration = Arc::new(registration, GFP_KERNEL)?;
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT_V4));
        let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT_V6));
        let v4 = Doorway::open(&v4, &registration, &driver)?;
        let v6 = match Doorway::open(&v6, &registration, &driver) {
            Ok(door) => Some(door),
            Err(error) => {
                // The connection manager accepts an IPv6 port even in a kernel without IPv6. In
                // such a kernel, only the driver of an iWARP device can refuse the port.
                if error.to_errno() != EAFNOSUPPORT {
                    // LOG: This host does not accept connections to its IPv6 addresses; the error
                    // says why.
                    pr_warn!("peers can connect only over IPv4: port {PORT_V6}: {error:?}\n");
                }
                None
            }
        };
        // The transport is opened in the last step of loading. From now on programs may hold
        // references to the module, so no step after this call may fail.
        registration.open();
        // LOG: The module is loaded, and RDS uses it.
        pr_info!("RDS over RDMA registered, version {}\n", version());
        Ok(Self {
            _v4: v4,
            _v6: v6,
            _registration: registration,
            _devices: devices,
        })
    }
}
