// SPDX-License-Identifier: GPL-2.0

//! The driver, which carries the kernel NFS client's RPCs over RDMA.
//!
//! The rules of the protocol are in `xprtrdma_proto`, and the contracts with the kernel in
//! `xprtrdma_sunrpc` and `xprtrdma_rdma`. The driver only moves bytes between these crates.
//!
//! | Module | Content |
//! | --- | --- |
//! | [`client`] | a transport: the operations of the RPC client |
//! | [`observe`] | for administrators: debugfs, mountstats |
//! | [`link`] | connection attempts, lost connections, back-off, silent servers |
//! | [`rpc`] | one RPC, in the order in which it happens |
//! | [`connection`] | the state that lives as long as one queue pair |
//! | [`driver`] | the marker type for the driver in sunrpc's generic types |
//! | [`params`] | parameters and sysctls |
//! | [`server`] | the state that the transports of a server share |
//! | [`counters`], [`log`] | counters, formatting of log lines |

#![forbid(unsafe_code)]

mod client;
mod connection;
mod counters;
mod driver;
mod link;
mod log;
mod machine;
mod observe;
mod params;
mod rpc;
mod server;

use kernel::prelude::*;
use xprtrdma_rdma::stack;
use xprtrdma_sunrpc::{
    class::Registration,
    sysctl,
    util::version, //
};

module! {
    type: XprtRdma,
    name: "xprtrdma_rs",
    authors: ["The xprtrdma_rs developers"],
    description: "RPC-over-RDMA client transport",
    license: "GPL",
    params: {
        slots: u32 {
            default: 128,
            description: "Requests in flight on one connection (4-4096, default 128)",
        },
        inline_size: u32 {
            default: 4096,
            description: "Largest message sent and received without RDMA, in bytes (1024-65536, default 4096)",
        },
        region_pages: u32 {
            default: 257,
            description: "Most memory in one region, in units of 4 KiB (1-1025, default 257)",
        },
        idle_timeout: u32 {
            default: 300,
            description: "Seconds without requests after which a connection is closed, 0 for never (0-86400, default 300)",
        },
        rdma_version: u32 {
            default: 1,
            description: "Protocol version: 1, 2 if the server has it (expired draft), 3 for nothing but 2 (1-3, default 1)",
        },
        registration_fence: u32 {
            default: 0,
            description: "On rxe, registrations wait for what was sent before: 0 once the device has lost a connection without, 1 always (0-1, default 0)",
        },
        strict: u32 {
            default: 0,
            description: "Refuse replies whose returned segments differ from ours (0-1, default 0)",
        },
    },
}

struct XprtRdma {
    // Dropping this field removes files of debugfs. The field is dropped before `_class`, which
    // owns the directory that contains these files.
    _files: Option<observe::debugfs::Global>,
    // Dropping this field removes the files of sysctls. The field is dropped before `_class`.
    // Otherwise the in-tree module could be loaded while the files still exist, and it creates
    // files of the same names.
    _sysctls: Option<sysctl::Table>,
    _class: Registration<driver::Rdma>,
}

impl kernel::Module for XprtRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        if let Some(module) = stack::foreign() {
            // LOG: The module is not loaded: see "Other RDMA stacks" in the administrator's guide.
            pr_err!(
                "{module} is not the kernel's own, with which this module was built (MLNX_OFED, \
                 DOCA-OFED?): structures may differ; use the rpcrdma that comes with it, or \
                 remove it, load the kernel's own and load this module again\n"
            );
            return Err(ENOEXEC);
        }
        params::check()?;
        let class = Registration::new().inspect_err(|e| {
            if *e == EEXIST {
                // LOG: The module is not loaded: see "Only one module can own the transport" in the
                // administrator's guide.
                pr_err!(
                    "another module (rpcrdma?) owns the \"rdma\" transport: unmount its NFS/RDMA \
                     mounts, stop an NFS/RDMA server on this host, run 'rmmod rpcrdma' and \
                     load this module again\n"
                );
            } else {
                // LOG: The module is not loaded; the error says why. Usually memory was short.
                pr_err!("cannot register the \"rdma\" transport: {e:?}\n");
            }
        })?;
        // LOG: The module is loaded and ready for mounts.
        pr_info!(
            "RPC-over-RDMA client transport registered, version {}; while this module is loaded \
             rpcrdma and its NFS/RDMA server cannot be loaded\n",
            version()
        );
        let sysctls = sysctl::Table::register();
        if sysctls.is_none() {
            // LOG: Memory was short, or another module has registered files with the same names.
            pr_warn!("no files in /proc/sys/sunrpc; the parameters hold\n");
        }
        // No step after the registration may fail. If the initialization failed, the kernel would
        // free the module, although a mount may already use the class.
        let files = observe::debugfs::global(class.common());
        if files.is_err() {
            // LOG: Memory was short when the module was loaded.
            pr_warn!("no memory for files in /sys/kernel/debug/xprtrdma_rs\n");
        }
        Ok(Self {
            _files: files.ok(),
            _sysctls: sysctls,
            _class: class,
        })
    }
}
