/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side that the server's module alone has; see helpers.h.
 */
#ifndef _XPRTRDMA_RS_SVC_H
#define _XPRTRDMA_RS_SVC_H

#include <linux/sunrpc/svc_xprt.h>

extern struct svc_xprt_class svcrdma_class;

void svcrdma_set_flag(struct svc_xprt *xprt, unsigned int flag);
void svcrdma_clear_flag(struct svc_xprt *xprt, unsigned int flag);
/* Either address is of an IP family. */
void svcrdma_set_local(struct svc_xprt *xprt, const struct sockaddr *local);
void svcrdma_set_remote(struct svc_xprt *xprt, const struct sockaddr *remote);
void svcrdma_begin_call(struct svc_rqst *rqstp, struct svc_xprt *xprt);

#endif
