/* SPDX-License-Identifier: GPL-2.0 */
/* Prototypes of the C code that only the server module has; see helpers.h. */
#ifndef _XPRTRDMA_RS_SVC_H
#define _XPRTRDMA_RS_SVC_H

#include <linux/list.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>

extern struct svc_xprt_class svcrdma_class;
/*
 * The transports on which nfsd sends callbacks to its clients. Each belongs to
 * a connection of class svcrdma_class.
 */
extern struct xprt_class svcrdma_reverse_class;
extern const struct rpc_timeout svcrdma_reverse_timeout;

/*
 * svcrdma_free_reverse() may be called even after svcrdma_set_reverse_peer()
 * has failed.
 */
int svcrdma_set_reverse_peer(struct rpc_xprt *xprt, const struct sockaddr *peer);
void svcrdma_free_reverse(struct rpc_xprt *xprt);
/*
 * Only the destroy operation calls svcrdma_unlock_reverse(), with the lock
 * held.
 */
void svcrdma_unlock_reverse(struct rpc_xprt *xprt);
void svcrdma_refuse_to_connect(struct rpc_xprt *xprt);

/*
 * An entry in the list of this module's connections. The connection removes the
 * entry before it is freed. svcrdma_get_connection() takes a reference to the
 * connection if it is in the list. "xprt" may be any pointer, even to memory
 * that was freed. All three functions may sleep.
 */
struct svcrdma_entry {
	struct list_head list;
	struct svc_xprt *xprt;
};

void svcrdma_list_connection(struct svcrdma_entry *entry, struct svc_xprt *xprt);
void svcrdma_unlist_connection(struct svcrdma_entry *entry);
bool svcrdma_get_connection(struct svc_xprt *xprt);

/*
 * Tells the RPC server that a call has arrived: sets XPT_DATA and wakes a thread.
 * May be called in any context.
 */
void svcrdma_call_arrived(struct svc_xprt *xprt);
void svcrdma_set_flag(struct svc_xprt *xprt, unsigned int flag);
void svcrdma_clear_flag(struct svc_xprt *xprt, unsigned int flag);
/*
 * svcrdma_set_local() and svcrdma_set_remote() set an IPv4 or IPv6 address of
 * the transport.
 */
void svcrdma_set_local(struct svc_xprt *xprt, const struct sockaddr *local);
void svcrdma_set_remote(struct svc_xprt *xprt, const struct sockaddr *remote);
void svcrdma_begin_call(struct svc_rqst *rqstp, struct svc_xprt *xprt);

/*
 * The sysctls show two types of values: sizes, and counters. The value of a
 * counter is the sum of its per-CPU parts.
 */
enum svcrdma_size {
	SVCRDMA_MAX_REQUESTS,
	SVCRDMA_MAX_REQ_SIZE,
	SVCRDMA_MAX_READS,
	/* The highest protocol version. This sysctl is writable. */
	SVCRDMA_VERSION,
	SVCRDMA_SIZES,
};

enum svcrdma_counter {
	SVCRDMA_STAT_RECV,
	SVCRDMA_STAT_READ,
	SVCRDMA_STAT_WRITE,
	SVCRDMA_STAT_SQ_STARVE,
	/* Counters of features that this server lacks. They are always zero. */
	SVCRDMA_STAT_NONE,
	SVCRDMA_COUNTERS,
};

/*
 * Each of these functions adds to one counter. They may be called in any
 * context.
 */
void svcrdma_count_received(unsigned long more);
void svcrdma_count_read(unsigned long more);
void svcrdma_count_written(unsigned long more);
void svcrdma_count_starved(unsigned long more);
void svcrdma_set_size(enum svcrdma_size which, unsigned int size);
unsigned int svcrdma_get_size(enum svcrdma_size which);
/*
 * Registers nothing if no memory is available, or if another module has sysctls
 * with these names.
 */
void svcrdma_register_sysctls(void);
void svcrdma_unregister_sysctls(void);

#endif
