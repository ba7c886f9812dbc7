/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side of the modules that accept connections; see
 * helpers.h.
 */
#ifndef _XPRTRDMA_RS_PASSIVE_H
#define _XPRTRDMA_RS_PASSIVE_H

#include <rdma/rdma_cm.h>

/* Maps contiguous bytes, which begin in this page. */
u64 xprtrdma_dma_map_page(struct ib_device *dev, struct page *page,
			  unsigned int dir);
void xprtrdma_dma_unmap_page(struct ib_device *dev, u64 addr, unsigned int dir);
void *xprtrdma_page_address(const struct page *page);
bool xprtrdma_pages_are_unshared(struct page **pages, unsigned int count);
bool xprtrdma_pages_hold_little(struct page **pages, unsigned int count);
void xprtrdma_put_pages(struct page **pages, unsigned int count);
int xprtrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);

#endif
