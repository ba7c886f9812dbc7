/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side that the server's module alone has; see helpers.h.
 */
#ifndef _XPRTRDMA_RS_SVC_H
#define _XPRTRDMA_RS_SVC_H

#include <linux/sunrpc/svc_xprt.h>
#include <rdma/rdma_cm.h>

extern struct svc_xprt_class svcrdma_class;

void svcrdma_set_flag(struct svc_xprt *xprt, unsigned int flag);
void svcrdma_clear_flag(struct svc_xprt *xprt, unsigned int flag);
/* Either address is of an IP family. */
void svcrdma_set_local(struct svc_xprt *xprt, const struct sockaddr *local);
void svcrdma_set_remote(struct svc_xprt *xprt, const struct sockaddr *remote);
void svcrdma_begin_call(struct svc_rqst *rqstp, struct svc_xprt *xprt);
u64 svcrdma_dma_map_page(struct ib_device *dev, struct page *page,
			 unsigned int dir);
void svcrdma_dma_unmap_page(struct ib_device *dev, u64 addr, unsigned int dir);
void *svcrdma_page_address(const struct page *page);
int svcrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);

#endif
