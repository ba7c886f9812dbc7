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

/* .setup is filled in before the class is registered. */
struct xprt_class svcrdma_reverse_class = {
	.list = LIST_HEAD_INIT(svcrdma_reverse_class.list),
	.ident = XPRT_TRANSPORT_BC_RDMA,
	.owner = THIS_MODULE,
	.name = "rdma backchannel",
	/* nfsd alone asks for it, by its number. */
	.netid = { "" },
};

/* nfsd brings time limits of its own. */
const struct rpc_timeout svcrdma_reverse_timeout = {
	.to_initval = 60 * HZ,
	.to_maxval = 60 * HZ,
};

int svcrdma_set_reverse_peer(struct rpc_xprt *xprt, const struct sockaddr *peer)
{
	const char *addr, *port;

	addr = kasprintf(GFP_KERNEL, "%pISc", peer);
	port = kasprintf(GFP_KERNEL, "%u", rpc_get_port(peer));
	xprt->address_strings[RPC_DISPLAY_ADDR] = addr;
	xprt->address_strings[RPC_DISPLAY_PORT] = port;
	xprt->address_strings[RPC_DISPLAY_PROTO] = "rdma";
	xprt->address_strings[RPC_DISPLAY_NETID] =
		peer->sa_family == AF_INET6 ? "rdma6" : "rdma";
	xprt->addrlen = svc_addr_len(peer);
	memcpy(&xprt->addr, peer, xprt->addrlen);
	return addr && port ? 0 : -ENOMEM;
}

void svcrdma_free_reverse(struct rpc_xprt *xprt)
{
	kfree(xprt->address_strings[RPC_DISPLAY_ADDR]);
	kfree(xprt->address_strings[RPC_DISPLAY_PORT]);
	xprt_free(xprt);
}

void svcrdma_unlock_reverse(struct rpc_xprt *xprt)
{
	clear_bit_unlock(XPRT_LOCKED, &xprt->state);
	smp_mb__after_atomic();
	wake_up_bit(&xprt->state, XPRT_LOCKED);
}

void svcrdma_refuse_to_connect(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
	xprt_wake_pending_tasks(xprt, -ENOTCONN);
}

bool svcrdma_is_connection(struct svc_xprt *xprt)
{
	return xprt->xpt_class == &svcrdma_class &&
	       !test_bit(XPT_LISTENER, &xprt->xpt_flags);
}

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
