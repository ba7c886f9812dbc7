/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers that bindgen reads. Types of other headers come from
 * kernel::bindings.
 */
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/stat.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/debug.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>
#include <linux/sunrpc/addr.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "../helpers/helpers.h"
#include "../helpers/trace.h"
#ifdef XPRTRDMA_SERVER
#include "../helpers/passive.h"
#include "../helpers/svc.h"
#include "../helpers/svc_trace.h"
#endif
#ifdef XPRTRDMA_RDS
#include "../helpers/passive.h"
#include "../helpers/rds.h"
#endif
#ifdef XPRTRDMA_KUNIT
#include "../helpers/passive.h"
#include "../kunit/fake_device.h"
#include "../kunit/fake_rpc.h"
#endif
