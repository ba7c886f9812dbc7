// SPDX-License-Identifier: GPL-2.0

//! The driver of the server: carries RPCs over RDMA for the kernel NFS server.
//!
//! The rules of the protocol are in `xprtrdma_proto`, the kernel's contracts in `xprtrdma_svc` and
//! `xprtrdma_rdma`. What is left here is moving bytes between them.
//!
//! | Room | What is in it |
//! | --- | --- |
//! | [`service`] | the operations of the RPC server |
//! | [`listener`] | connection requests |
//! | [`connection`] | an accepted connection, and how it is made |
//! | [`receive`] | messages of the client, up to the RPC server |
//! | [`read`] | calls of which parts are still in the client's memory |
//! | [`memory`] | the memory that calls of all connections hold |
//! | [`call`] | a call that the RPC server has |
//! | [`reply`] | replies of the RPC server |
//! | [`outbox`] | answers on their way to the client |
//! | [`reverse`] | calls of nfsd to the client |
//! | [`events`] | what the connection manager tells of a connection |
//! | [`crowd`] | the connections of a listener, and how each of them ends |
//! | [`breakers`] | calls that broke connections |
//! | [`ticker`] | looks after connections from time to time |
//! | [`count`] | counts how often each bound was reached |
//! | [`latency`] | how long calls spend in each stage |
//! | [`stats`] | what a connection has done |
//! | [`board`] | what an administrator sees of listeners and connections |
//! | [`driver`] | the name of the driver in the RPC server's types |
//! | [`sizes`] | sizes and bounds |

#![forbid(unsafe_code)]

mod board;
mod breakers;
mod call;
mod connection;
mod count;
mod crowd;
mod driver;
mod events;
mod latency;
mod listener;
mod memory;
mod outbox;
mod read;
mod receive;
mod reply;
mod reverse;
mod service;
mod sizes;
mod stats;
mod ticker;

use kernel::prelude::*;
use xprtrdma_rdma::stack;
use xprtrdma_svc::{
    class::Registration,
    sysctl::Version,
    util::{
        debugfs::File,
        host_pages,
        number,
        version, //
    }, //
};

module! {
    type: SvcRdma,
    name: "svcrdma_rs",
    authors: ["The xprtrdma_rs developers"],
    description: "RPC-over-RDMA server transport",
    license: "GPL",
    params: {
        rdma_version: u32 {
            default: 1,
            description: "Highest protocol version: 1, or 2 for clients that ask for it (expired draft) (1-2, default 1)",
        },
    },
}

/// The values of `rdma_version`.
const VERSIONS: core::ops::RangeInclusive<u32> = 1..=2;

struct SvcRdma {
    _bounds: Option<File<()>>,
    _latency: Option<[File<()>; 2]>,
    _class: Registration<driver::Rdma>,
}

impl kernel::Module for SvcRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if let Some(module) = stack::foreign() {
            pr_err!("{module} is not the kernel's own, with which this module was built\n");
            return Err(ENOEXEC);
        }
        let highest = number(module_parameters::rdma_version.value());
        if !VERSIONS.contains(&highest) {
            pr_err!("parameter rdma_version={highest} is out of range (1 to 2)\n");
            return Err(EINVAL);
        }
        Version::preset(highest);
        memory::set(host_pages());
        let class = Registration::new().inspect_err(|e| {
            if *e == EEXIST {
                pr_err!(
                    "another module (rpcrdma?) serves \"rdma\": stop the NFS server, run \
                     'rmmod rpcrdma' and load this module again\n"
                );
            } else {
                pr_err!("cannot register the \"rdma\" transport: {e:?}\n");
            }
        })?;
        // From here on nothing may fail: a listener may exist, and the kernel frees a module whose
        // initialisation fails in spite of references to it.
        let bounds = count::file().ok();
        pr_info!(
            "RPC-over-RDMA server transport registered, version {}\n",
            version()
        );
        Ok(Self {
            _bounds: bounds,
            _latency: latency::files_of_latency().ok(),
            _class: class,
        })
    }
}
