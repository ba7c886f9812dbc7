// SPDX-License-Identifier: GPL-2.0

//! The server's driver, which carries RPCs over RDMA for the kernel NFS server.
//!
//! The rules of the protocol are in `xprtrdma_proto`. The interfaces to the kernel are in
//! `xprtrdma_svc` and `xprtrdma_rdma`. This crate connects the protocol with these interfaces.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`service`] | the operations of the RPC server |
//! | [`listener`] | connection requests |
//! | [`connection`] | an accepted connection, and how it is created |
//! | [`receive`] | messages from the client, until they are passed to the RPC server |
//! | [`read`] | calls that wait for memory, or whose data are still in the client's memory |
//! | [`fetch`] | a call that waits for memory or its RDMA Reads, and the assembly of its message |
//! | [`memory`] | the memory that calls of all connections hold |
//! | [`turns`] | the order in which connections get memory while memory is short |
//! | [`call`] | a call that was passed to the RPC server |
//! | [`reply`] | replies of the RPC server |
//! | [`outbox`] | responses that wait until they can be sent to the client |
//! | [`reverse`] | calls of nfsd to the client |
//! | [`events`] | the events that the connection manager reports for a connection |
//! | [`crowd`] | the connections of a listener, and the causes of their end |
//! | [`sweep`] | drops connection requests that have ended before a thread has taken them |
//! | [`breakers`] | calls whose failed RDMA operations broke connections |
//! | [`ticker`] | periodic checks of connections |
//! | [`tending`] | what a periodic check does |
//! | [`count`] | counts how many times each limit was reached |
//! | [`latency`] | how long calls spend in each stage |
//! | [`stats`] | statistics of a connection |
//! | [`log`] | limits on lines of the log |
//! | [`board`] | the debugfs files of listeners and connections |
//! | [`driver`] | the type that represents this driver in the interface to the RPC server |
//! | [`sizes`] | sizes and limits |

#![forbid(unsafe_code)]

mod board;
mod breakers;
mod call;
mod connection;
mod count;
mod crowd;
mod driver;
mod events;
mod fetch;
mod follow;
mod latency;
mod listener;
mod log;
mod memory;
mod outbox;
mod read;
mod receive;
mod reply;
mod reverse;
mod service;
mod sizes;
mod stats;
mod sweep;
mod tending;
mod ticker;
mod turns;

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

/// The allowed values of `rdma_version`.
const VERSIONS: core::ops::RangeInclusive<u32> = 1..=2;

struct SvcRdma {
    _bounds: Option<File<()>>,
    _latency: Option<[File<()>; 2]>,
    _class: Registration<driver::Rdma>,
}

impl kernel::Module for SvcRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if let Some(module) = stack::foreign() {
            // LOG: The module is not loaded: see "Other RDMA stacks" in the administrator's guide.
            pr_err!("{module} is not the kernel's own, with which this module was built\n");
            return Err(ENOEXEC);
        }
        let highest = number(module_parameters::rdma_version.value());
        if !VERSIONS.contains(&highest) {
            // LOG: The module is not loaded: the parameter must have another value.
            pr_err!("parameter rdma_version={highest} is out of range (1 to 2)\n");
            return Err(EINVAL);
        }
        Version::preset(highest);
        memory::set(host_pages())?;
        turns::set()?;
        let class = Registration::new().inspect_err(|e| {
            if *e == EEXIST {
                // LOG: The module is not loaded: see "Load it" above.
                pr_err!(
                    "another module (rpcrdma?) serves \"rdma\": stop the NFS server, run \
                     'rmmod rpcrdma' and load this module again\n"
                );
            } else {
                // LOG: The module is not loaded; the error says why. Usually memory was short.
                pr_err!("cannot register the \"rdma\" transport: {e:?}\n");
            }
        })?;
        // No step after this line may fail. From now on a listener may exist. If the initialisation
        // failed now, the kernel would free the module although the listener holds a reference to
        // the module.
        let bounds = count::file().ok();
        // LOG: The module is loaded, and the NFS server can listen to RDMA.
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
