/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side that the server's module alone has; see helpers.h.
 */
#ifndef _XPRTRDMA_RS_SVC_H
#define _XPRTRDMA_RS_SVC_H

#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>

extern struct svc_xprt_class svcrdma_class;
/* Transports on which nfsd calls its clients, each on a connection of the class above. */
extern struct xprt_class svcrdma_reverse_class;
extern const struct rpc_timeout svcrdma_reverse_timeout;

/* On error the transport is as good as new to svcrdma_free_reverse(). */
int svcrdma_set_reverse_peer(struct rpc_xprt *xprt, const struct sockaddr *peer);
void svcrdma_free_reverse(struct rpc_xprt *xprt);
/* For the destroy operation alone, which is called with the lock held. */
void svcrdma_unlock_reverse(struct rpc_xprt *xprt);
void svcrdma_refuse_to_connect(struct rpc_xprt *xprt);
/* Whether it is of our class, and no listener. */
bool svcrdma_is_connection(struct svc_xprt *xprt);

void svcrdma_set_flag(struct svc_xprt *xprt, unsigned int flag);
void svcrdma_clear_flag(struct svc_xprt *xprt, unsigned int flag);
/* Either address is of an IP family. */
void svcrdma_set_local(struct svc_xprt *xprt, const struct sockaddr *local);
void svcrdma_set_remote(struct svc_xprt *xprt, const struct sockaddr *remote);
void svcrdma_begin_call(struct svc_rqst *rqstp, struct svc_xprt *xprt);

#endif
