/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side of the modules that accept connections; see
 * helpers.h.
 */
#ifndef _XPRTRDMA_RS_PASSIVE_H
#define _XPRTRDMA_RS_PASSIVE_H

#include <rdma/rdma_cm.h>

/* Allocates zeroed, contiguous pages with one common reference count. */
struct page *xprtrdma_alloc_pages(unsigned int order);
void xprtrdma_put_page(struct page *page);
struct page *xprtrdma_next_page(struct page *page, unsigned int index);
bool xprtrdma_page_is_unshared(const struct page *page);
/* Returns how many pages are contiguous from the first one on: at least one. */
unsigned int xprtrdma_contiguous_pages(struct page **pages, unsigned int count);
/* Maps contiguous bytes, which begin at this offset from the page. */
bool xprtrdma_dma_map_pages(struct ib_device *dev, struct page *page,
			    size_t offset, size_t len, unsigned int dir,
			    u64 *addr);
/*
 * Maps the pages that are contiguous from the first one on, but at most `most`.
 * Returns the number of mapped pages, or 0 if the mapping failed.
 */
unsigned int xprtrdma_dma_map_first(struct ib_device *dev, struct page **pages,
				    unsigned int most, unsigned int dir,
				    u64 *addr);
void xprtrdma_dma_unmap_pages(struct ib_device *dev, u64 addr, size_t len,
			      unsigned int dir);
void *xprtrdma_page_address(const struct page *page);
bool xprtrdma_pages_hold_little(struct page **pages, unsigned int count);
void xprtrdma_put_pages(struct page **pages, unsigned int count);
int xprtrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);

#endif
