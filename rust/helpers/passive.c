// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers of static inlines, for the modules that accept connections and
 * transfer pages of their own. This file makes no policy decisions.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>

#include "passive.h"

/*
 * Orders above 0 are opportunistic: they reclaim nothing, wake no kswapd, and
 * take nothing of the reserves.
 */
struct page *xprtrdma_alloc_pages(unsigned int order)
{
	gfp_t gfp = GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN;

	if (order > MAX_PAGE_ORDER)
		return NULL;
	if (order) {
		gfp &= ~__GFP_RECLAIM;
		gfp |= __GFP_COMP | __GFP_NORETRY | __GFP_NOMEMALLOC;
	}
	return alloc_pages(gfp, order);
}

void xprtrdma_put_page(struct page *page)
{
	put_page(page);
}

/* The page structures of one allocation are adjacent in memory. */
struct page *xprtrdma_next_page(struct page *page, unsigned int index)
{
	return page + index;
}

/* All pages of one allocation have a common reference count. */
bool xprtrdma_page_is_unshared(const struct page *page)
{
	return page_count(page) == 1;
}

static bool is_next(const struct page *page, const struct page *next)
{
	/*
	 * In other configurations, the page structures of consecutive page
	 * frames are consecutive in memory.
	 */
	if (IS_ENABLED(CONFIG_SPARSEMEM) &&
	    !IS_ENABLED(CONFIG_SPARSEMEM_VMEMMAP))
		return page_to_pfn(next) == page_to_pfn(page) + 1;
	return next == page + 1;
}

unsigned int xprtrdma_contiguous_pages(struct page **pages, unsigned int count)
{
	unsigned int index = 1;

	while (index < count && is_next(pages[index - 1], pages[index]))
		index++;
	return index;
}

bool xprtrdma_dma_map_pages(struct ib_device *dev, struct page *page,
			    size_t offset, size_t len, unsigned int dir,
			    u64 *addr)
{
	*addr = ib_dma_map_page(dev, page, offset, len, dir);
	return !ib_dma_mapping_error(dev, *addr);
}

/*
 * Maps the physically contiguous pages at the front of "pages" with a single
 * call of ib_dma_map_page().
 */
unsigned int xprtrdma_dma_map_first(struct ib_device *dev, struct page **pages,
				    unsigned int most, unsigned int dir,
				    u64 *addr)
{
	unsigned int count = 1;

	while (count < most && is_next(pages[count - 1], pages[count]))
		count++;
	*addr = ib_dma_map_page(dev, *pages, 0, (size_t)count << PAGE_SHIFT,
				dir);
	return ib_dma_mapping_error(dev, *addr) ? 0 : count;
}

void xprtrdma_dma_unmap_pages(struct ib_device *dev, u64 addr, size_t len,
			      unsigned int dir)
{
	ib_dma_unmap_page(dev, addr, len, dir);
}

void *xprtrdma_page_address(const struct page *page)
{
	return page_address(page);
}

/* A reference to a page keeps the memory of the whole folio. */
bool xprtrdma_pages_hold_little(struct page **pages, unsigned int count)
{
	const struct folio *last = NULL;
	unsigned long held = 0;
	unsigned int index;

	for (index = 0; index < count; index++) {
		const struct folio *folio = page_folio(pages[index]);

		if (folio != last)
			held += folio_nr_pages(folio);
		last = folio;
	}
	return held <= 8ul * count;
}

/*
 * In most cases the page cache holds references to the pages as well. Then only
 * reference counts change. Otherwise the pages are freed, and it is cheaper to
 * free them in a batch.
 */
void xprtrdma_put_pages(struct page **pages, unsigned int count)
{
	struct folio *folio = NULL;
	unsigned int index;
	int refs = 0;

	if (count && page_count(*pages) == 1) {
		release_pages(pages, count);
		return;
	}
	for (index = 0; index < count; index++) {
		struct folio *next = page_folio(pages[index]);

		if (refs && next != folio) {
			folio_put_refs(folio, refs);
			refs = 0;
		}
		folio = next;
		refs++;
	}
	if (refs)
		folio_put_refs(folio, refs);
}

int xprtrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int err;

	rdma_lock_handler(id);
	err = rdma_accept(id, param);
	rdma_unlock_handler(id);
	return err;
}
