// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of svcrdma_rs alone: the transport class object and wrappers of
 * static inlines of the RPC server. No decision is taken here.
 */
#include <linux/bitops.h>
#include <linux/module.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/xprt.h>

#include "svc.h"

/* .xcl_ops is filled in before the class is registered. */
struct svc_xprt_class svcrdma_class = {
	.xcl_name = "rdma",
	.xcl_owner = THIS_MODULE,
	.xcl_max_payload = RPCSVC_MAXPAYLOAD,
	.xcl_ident = XPRT_TRANSPORT_RDMA,
};

void svcrdma_set_flag(struct svc_xprt *xprt, unsigned int flag)
{
	set_bit(flag, &xprt->xpt_flags);
}

void svcrdma_clear_flag(struct svc_xprt *xprt, unsigned int flag)
{
	clear_bit(flag, &xprt->xpt_flags);
	/* The caller looks at its queue behind this. */
	smp_mb__after_atomic();
}

void svcrdma_set_local(struct svc_xprt *xprt, const struct sockaddr *local)
{
	svc_xprt_set_local(xprt, local, svc_addr_len(local));
}

void svcrdma_set_remote(struct svc_xprt *xprt, const struct sockaddr *remote)
{
	svc_xprt_set_remote(xprt, remote, svc_addr_len(remote));
	/* The duplicate request cache knows a client across its connections. */
	rpc_set_port((struct sockaddr *)&xprt->xpt_remote, 0);
}

void svcrdma_begin_call(struct svc_rqst *rqstp, struct svc_xprt *xprt)
{
	/* Flags stay from the transport that this thread served before. */
	set_bit(RQ_SECURE, &rqstp->rq_flags);
	clear_bit(RQ_LOCAL, &rqstp->rq_flags);
	/* As the in-tree transport: it is a part of the key of that cache. */
	rqstp->rq_prot = IPPROTO_MAX;
	svc_xprt_copy_addrs(rqstp, xprt);
}
