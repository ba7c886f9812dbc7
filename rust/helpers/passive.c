// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers of the kernel's static inline functions, for the modules that accept
 * connections and transfer their own pages. This file makes no policy
 * decisions.
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
	 * With SPARSEMEM and without VMEMMAP, the page structures of
	 * consecutive page frames need not be consecutive in memory.
	 */
	if (IS_ENABLED(CONFIG_SPARSEMEM) &&
	    !IS_ENABLED(CONFIG_SPARSEMEM_VMEMMAP))
		return page_to_pfn(next) == page_to_pfn(page) + 1;
	return next == page + 1;
}

static struct ib_sge whole_page(const struct page *page, u32 lkey)
{
	return (struct ib_sge) {
		.addr = (uintptr_t)page_address(page),
		.length = PAGE_SIZE,
		.lkey = lkey,
	};
}

/*
 * Maps bytes for a device that accesses memory by the kernel's addresses. There
 * is at least one byte, and space for at least one element. Returns the address
 * after the last element. At first the elements describe whole pages. Then the
 * first and the last element are shortened to the requested bytes.
 */
static struct ib_sge *map_virtual(struct ib_pd *pd, struct xprtrdma_bytes *bytes,
				  size_t longest, struct ib_sge *sges,
				  unsigned int most)
{
	struct page **const pages = bytes->pages + (bytes->offset >> PAGE_SHIFT);
	struct ib_sge *const stop = sges + most - 1, *sge = sges;
	const size_t offset = offset_in_page(bytes->offset);
	const size_t want = min(bytes->left, longest);
	const size_t count = PFN_UP(offset + want);
	const u32 lkey = pd->local_dma_lkey;
	const struct page *last = *pages;
	size_t index, whole, len;

	*sge = whole_page(last, lkey);
	for (index = 1; index < count; index++) {
		const struct page *const page = pages[index];

		if (is_next(last, page)) {
			sge->length += PAGE_SIZE;
		} else {
			if (sge == stop)
				break;
			*++sge = whole_page(page, lkey);
		}
		last = page;
	}
	whole = index * PAGE_SIZE - offset;
	len = min(whole, want);
	sges->addr += offset;
	sges->length -= offset;
	sge->length -= whole - len;
	bytes->offset += len;
	bytes->left -= len;
	return sge + 1;
}

/*
 * Returns how many pages, at most `most`, are contiguous in memory, beginning
 * with the first page.
 */
static size_t run_length(struct page **pages, size_t most)
{
	size_t length = 1;

	while (length < most && is_next(pages[length - 1], pages[length]))
		length++;
	return length;
}

static struct ib_sge *map_pages(struct ib_pd *pd, struct xprtrdma_bytes *bytes,
				size_t longest, unsigned int dir,
				struct ib_sge *sges, unsigned int most)
{
	struct ib_sge *const stop = sges + most, *sge = sges;

	while (bytes->left && sge != stop) {
		const size_t want = min(bytes->left, longest);
		struct page **pages = bytes->pages + (bytes->offset >> PAGE_SHIFT);
		const size_t offset = offset_in_page(bytes->offset);
		const size_t length = run_length(pages, PFN_UP(offset + want));
		const size_t len = min(length * PAGE_SIZE - offset, want);

		if (!xprtrdma_dma_map_piece(pd, *pages, offset, len, dir, sge)) {
			bytes->refused = len;
			break;
		}
		sge++;
		bytes->offset += len;
		bytes->left -= len;
	}
	return sge;
}

unsigned int xprtrdma_dma_map(struct ib_pd *pd, struct xprtrdma_bytes *bytes,
			      size_t longest, unsigned int dir,
			      struct ib_sge *sges, unsigned int most)
{
	struct ib_sge *end;

	bytes->refused = 0;
	if (ib_uses_virt_dma(pd->device))
		end = map_virtual(pd, bytes, longest, sges, most);
	else
		end = map_pages(pd, bytes, longest, dir, sges, most);
	return end - sges;
}

bool xprtrdma_dma_map_piece(struct ib_pd *pd, struct page *page, size_t offset,
			    size_t len, unsigned int dir, struct ib_sge *sge)
{
	const u64 addr = ib_dma_map_page(pd->device, page, offset, len, dir);

	if (ib_dma_mapping_error(pd->device, addr))
		return false;
	sge->addr = addr;
	sge->length = len;
	sge->lkey = pd->local_dma_lkey;
	return true;
}

bool xprtrdma_dma_needs_unmapping(struct ib_device *dev)
{
	return !ib_uses_virt_dma(dev);
}

void xprtrdma_dma_unmap(struct ib_device *dev, const struct ib_sge *sges,
			size_t count, unsigned int dir)
{
	const struct ib_sge *end = sges + count;

	for (; sges < end; sges++)
		ib_dma_unmap_page(dev, sges->addr, sges->length, dir);
}

void *xprtrdma_page_address(const struct page *page)
{
	return page_address(page);
}

/*
 * Returns whether the folios together have at most `most` pages. A reference to
 * one page keeps its whole folio allocated.
 */
bool xprtrdma_pages_hold_at_most(struct page **pages, unsigned int count,
				 size_t most)
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
	return held <= most;
}

/*
 * Drops the references to the first page of an array and to the following pages
 * of the same folio.
 */
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
 * In most cases the page cache holds references to the pages as well, so only
 * reference counts change. In all other cases the pages are freed, and it is
 * cheaper to free them in a batch.
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
