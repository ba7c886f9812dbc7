// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers of static inlines, for the modules that accept connections and
 * transfer pages of their own. This file makes no policy decisions.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>

#include "passive.h"

/*
 * Allocations of an order above 0 are opportunistic: they reclaim no memory, do
 * not wake kswapd, and do not use the memory reserves.
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

/* Returns the number of pages from this page to the end of its folio. */
static size_t rest_of_folio(struct page *page)
{
	const struct folio *folio = page_folio(page);

	return folio_nr_pages(folio) - folio_page_idx(folio, page);
}

unsigned int xprtrdma_dma_map(struct ib_pd *pd, struct xprtrdma_bytes *bytes,
			      size_t longest, unsigned int dir,
			      struct ib_sge *sges, unsigned int most)
{
	struct page **pages = bytes->pages + (bytes->offset >> PAGE_SHIFT);
	size_t offset = offset_in_page(bytes->offset), left = bytes->left;
	struct ib_sge *const end = sges + most;
	const bool whole = bytes->whole_folios;
	struct ib_device *dev = pd->device;
	const u32 lkey = pd->local_dma_lkey;
	struct ib_sge *sge;

	bytes->refused = 0;
	for (sge = sges; left && sge != end; sge++) {
		const size_t want = min(left, longest);
		struct page **next = pages, *last = *next++;
		size_t len = PAGE_SIZE - offset;

		if (whole && len < want) {
			next += rest_of_folio(last) - 1;
			len += (next - pages - 1) * PAGE_SIZE;
			last = next[-1];
		}
		while (len < want && is_next(last, *next)) {
			last = *next++;
			len += PAGE_SIZE;
		}
		len = min(len, want);
		sge->addr = ib_dma_map_page(dev, *pages, offset, len, dir);
		if (ib_dma_mapping_error(dev, sge->addr)) {
			bytes->refused = len;
			break;
		}
		sge->length = len;
		sge->lkey = lkey;
		left -= len;
		offset += len;
		pages += offset >> PAGE_SHIFT;
		offset = offset_in_page(offset);
	}
	bytes->offset += bytes->left - left;
	bytes->left = left;
	return sge - sges;
}

void xprtrdma_dma_unmap(struct ib_device *dev, const struct ib_sge *sges,
			size_t count, unsigned int dir)
{
	const struct ib_sge *end = sges + count;

	if (ib_uses_virt_dma(dev))
		return;
	for (; sges < end; sges++)
		ib_dma_unmap_page(dev, sges->addr, sges->length, dir);
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

/* Drops the references to all pages of a folio at the start of an array. */
static struct page **put_tails(struct page **pages, struct page **end)
{
	struct folio *folio = page_folio(*pages);
	struct page **next = pages + 1;

	while (next != end && page_folio(*next) == folio)
		next++;
	folio_put_refs(folio, next - pages);
	return next;
}

/*
 * In most cases the page cache holds references to the pages as well. Then only
 * reference counts change. Otherwise the pages are freed, and it is cheaper to
 * free them in a batch.
 */
void xprtrdma_put_pages(struct page **pages, unsigned int count)
{
	struct page **const end = pages + count;

	if (folio_ref_count(page_folio(*pages)) == 1) {
		release_pages(pages, count);
		return;
	}
	while (pages != end) {
		/* A page that is not a tail page is the first page of its folio. */
		while (likely(!PageTail(*pages))) {
			folio_put((struct folio *)*pages);
			if (++pages == end)
				return;
		}
		pages = put_tails(pages, end);
	}
}

int xprtrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int err;

	rdma_lock_handler(id);
	err = rdma_accept(id, param);
	rdma_unlock_handler(id);
	return err;
}
