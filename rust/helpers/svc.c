// SPDX-License-Identifier: GPL-2.0
/*
 * The C code that only svcrdma_rs has: the transport class object, and wrappers
 * of static inlines of the RPC server. This file makes no policy decisions.
 */
#include <linux/bitops.h>
#include <linux/cleanup.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sysctl.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/xprt.h>

#include "svc.h"

/* Rust sets .xcl_ops before it registers the class. */
struct svc_xprt_class svcrdma_class = {
	.xcl_name = "rdma",
	.xcl_owner = THIS_MODULE,
	.xcl_max_payload = RPCSVC_MAXPAYLOAD,
	.xcl_ident = XPRT_TRANSPORT_RDMA,
};

/* Rust sets .setup before it registers the class. */
struct xprt_class svcrdma_reverse_class = {
	.list = LIST_HEAD_INIT(svcrdma_reverse_class.list),
	.ident = XPRT_TRANSPORT_BC_RDMA,
	.owner = THIS_MODULE,
	.name = "rdma backchannel",
	/*
	 * Only nfsd uses this class, and finds it by its ident, not its netid.
	 */
	.netid = { "" },
};

/* These timeouts are only a default, because nfsd passes its own. */
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
	/* Orders the unlock before the check for waiters; see wake_up_bit(). */
	smp_mb__after_atomic();
	wake_up_bit(&xprt->state, XPRT_LOCKED);
}

void svcrdma_refuse_to_connect(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
	xprt_wake_pending_tasks(xprt, -ENOTCONN);
}

/* The connections that may still have references. */
static LIST_HEAD(svcrdma_connections);
static DEFINE_MUTEX(svcrdma_connections_lock);

void svcrdma_list_connection(struct svcrdma_entry *entry, struct svc_xprt *xprt)
{
	entry->xprt = xprt;
	guard(mutex)(&svcrdma_connections_lock);
	list_add(&entry->list, &svcrdma_connections);
}

void svcrdma_unlist_connection(struct svcrdma_entry *entry)
{
	guard(mutex)(&svcrdma_connections_lock);
	list_del(&entry->list);
}

bool svcrdma_get_connection(struct svc_xprt *xprt)
{
	struct svcrdma_entry *entry;

	guard(mutex)(&svcrdma_connections_lock);
	list_for_each_entry(entry, &svcrdma_connections, list)
		if (entry->xprt == xprt)
			return kref_get_unless_zero(&xprt->xpt_ref);
	return false;
}

void svcrdma_call_arrived(struct svc_xprt *xprt)
{
	set_bit(XPT_DATA, &xprt->xpt_flags);
	svc_xprt_enqueue(xprt);
}

void svcrdma_set_flag(struct svc_xprt *xprt, unsigned int flag)
{
	set_bit(flag, &xprt->xpt_flags);
}

void svcrdma_clear_flag(struct svc_xprt *xprt, unsigned int flag)
{
	clear_bit(flag, &xprt->xpt_flags);
	/* Orders the clearing of the flag before the caller's check of its queue. */
	smp_mb__after_atomic();
}

void svcrdma_set_local(struct svc_xprt *xprt, const struct sockaddr *local)
{
	svc_xprt_set_local(xprt, local, svc_addr_len(local));
}

void svcrdma_set_remote(struct svc_xprt *xprt, const struct sockaddr *remote)
{
	svc_xprt_set_remote(xprt, remote, svc_addr_len(remote));
	/*
	 * The duplicate request cache compares the client's address. A client that
	 * reconnects may have a new port, so the port is removed from the address.
	 */
	rpc_set_port((struct sockaddr *)&xprt->xpt_remote, 0);
}

void svcrdma_begin_call(struct svc_rqst *rqstp, struct svc_xprt *xprt)
{
	/*
	 * The flags of the thread may still have the values for a call of another
	 * transport. A flag is written only if its value is wrong.
	 */
	if (!test_bit(RQ_SECURE, &rqstp->rq_flags))
		set_bit(RQ_SECURE, &rqstp->rq_flags);
	if (test_bit(RQ_LOCAL, &rqstp->rq_flags))
		clear_bit(RQ_LOCAL, &rqstp->rq_flags);
	/*
	 * The protocol number is part of the key of the duplicate request cache. The
	 * in-tree transport uses the same number.
	 */
	rqstp->rq_prot = IPPROTO_MAX;
	svc_xprt_copy_addrs(rqstp, xprt);
}

/*
 * The sysctls in sunrpc/svc_rdma, with the names that the in-tree server uses.
 * A counter shows the number of events since its file was last written.
 */
static DEFINE_PER_CPU(unsigned long [SVCRDMA_COUNTERS], svcrdma_counters);
static unsigned long svcrdma_counted[SVCRDMA_COUNTERS];
static unsigned int svcrdma_sizes[SVCRDMA_SIZES];

/* The index is a constant, so the compiler adds no bounds check. */
#define COUNT(name, index)					\
void svcrdma_count_##name(unsigned long more)			\
{								\
	this_cpu_add(svcrdma_counters[index], more);		\
}

COUNT(received, SVCRDMA_STAT_RECV)
COUNT(read, SVCRDMA_STAT_READ)
COUNT(written, SVCRDMA_STAT_WRITE)
COUNT(starved, SVCRDMA_STAT_SQ_STARVE)

void svcrdma_set_size(enum svcrdma_size which, unsigned int size)
{
	WRITE_ONCE(svcrdma_sizes[which], size);
}

unsigned int svcrdma_get_size(enum svcrdma_size which)
{
	return READ_ONCE(svcrdma_sizes[which]);
}

static int handle_counter(const struct ctl_table *table, int write,
			  void *buffer, size_t *lenp, loff_t *ppos)
{
	unsigned long *before = table->data, sum = 0, shown;
	const struct ctl_table number = {
		.procname	= table->procname,
		.data		= &shown,
		.maxlen		= sizeof(shown),
	};
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(svcrdma_counters, cpu)[before - svcrdma_counted];
	if (write) {
		WRITE_ONCE(*before, sum);
		*ppos += *lenp;
		return 0;
	}
	shown = sum - READ_ONCE(*before);
	return proc_doulongvec_minmax(&number, 0, buffer, lenp, ppos);
}

#define SIZE(name, index) {					\
	.procname	= name,					\
	.data		= &svcrdma_sizes[index],		\
	.maxlen		= sizeof(svcrdma_sizes[0]),		\
	.mode		= 0444,					\
	.proc_handler	= proc_douintvec,			\
}

#define COUNTER(name, index) {					\
	.procname	= name,					\
	.data		= &svcrdma_counted[index],		\
	.mode		= 0644,					\
	.proc_handler	= handle_counter,			\
}

static const struct ctl_table svcrdma_table[] = {
	SIZE("max_requests", SVCRDMA_MAX_REQUESTS),
	SIZE("max_req_size", SVCRDMA_MAX_REQ_SIZE),
	SIZE("max_outbound_read_requests", SVCRDMA_MAX_READS),
	{
		.procname	= "rdma_version",
		.data		= &svcrdma_sizes[SVCRDMA_VERSION],
		.maxlen		= sizeof(svcrdma_sizes[0]),
		.mode		= 0644,
		.proc_handler	= proc_douintvec_minmax,
		.extra1		= SYSCTL_ONE,
		.extra2		= SYSCTL_TWO,
	},
	COUNTER("rdma_stat_recv", SVCRDMA_STAT_RECV),
	COUNTER("rdma_stat_read", SVCRDMA_STAT_READ),
	COUNTER("rdma_stat_write", SVCRDMA_STAT_WRITE),
	COUNTER("rdma_stat_sq_starve", SVCRDMA_STAT_SQ_STARVE),
	COUNTER("rdma_stat_rq_starve", SVCRDMA_STAT_NONE),
	COUNTER("rdma_stat_rq_poll", SVCRDMA_STAT_NONE),
	COUNTER("rdma_stat_rq_prod", SVCRDMA_STAT_NONE),
	COUNTER("rdma_stat_sq_poll", SVCRDMA_STAT_NONE),
	COUNTER("rdma_stat_sq_prod", SVCRDMA_STAT_NONE),
};

static struct ctl_table_header *svcrdma_header;

void svcrdma_register_sysctls(void)
{
	svcrdma_header = register_sysctl("sunrpc/svc_rdma", svcrdma_table);
}

void svcrdma_unregister_sysctls(void)
{
	unregister_sysctl_table(svcrdma_header);
	svcrdma_header = NULL;
}
