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

/* Bytes in pages. */
struct xprtrdma_bytes {
	struct page **pages;
	/* The offset of the first byte from the start of the first page. */
	size_t offset;
	/* The number of bytes. */
	size_t left;
	/*
	 * The length of the piece that xprtrdma_dma_map() could not map, or 0.
	 */
	size_t refused;
};

/*
 * Maps the bytes in order, piece by piece. A piece is physically contiguous, and
 * has at most `longest` bytes. Writes an element for each piece to `sges`, and
 * returns the number of elements. Removes the mapped bytes from `bytes`.
 *
 * Stops when one of these is true:
 * - All bytes are mapped.
 * - `most` pieces are mapped.
 * - The next piece cannot be mapped.
 * - `longest` bytes are mapped, and the device uses the kernel's addresses.
 *
 * All bytes must be inside the pages. There must be at least one byte, and
 * `longest` and `most` must not be 0.
 */
unsigned int xprtrdma_dma_map(struct ib_pd *pd, struct xprtrdma_bytes *bytes,
			      size_t longest, unsigned int dir,
			      struct ib_sge *sges, unsigned int most);
/*
 * Maps `len` bytes that are physically contiguous. The first byte has the offset
 * `offset` in the page. Writes the element for the bytes to `sge`. Returns false
 * if the bytes cannot be mapped.
 */
bool xprtrdma_dma_map_piece(struct ib_pd *pd, struct page *page, size_t offset,
			    size_t len, unsigned int dir, struct ib_sge *sge);
/* Whether the device needs xprtrdma_dma_unmap(). The result never changes. */
bool xprtrdma_dma_needs_unmapping(struct ib_device *dev);
/*
 * Unmaps the memory of SGEs that xprtrdma_dma_map() or xprtrdma_dma_map_piece()
 * has filled in.
 */
void xprtrdma_dma_unmap(struct ib_device *dev, const struct ib_sge *sges,
			size_t count, unsigned int dir);
void *xprtrdma_page_address(const struct page *page);
bool xprtrdma_pages_hold_at_most(struct page **pages, unsigned int count,
				 size_t most);
/* Drops one reference to each page. There must be at least one page. */
void xprtrdma_put_pages(struct page **pages, unsigned int count);
int xprtrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);

#endif
