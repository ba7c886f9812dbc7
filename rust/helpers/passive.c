// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers of static inlines, for the modules that accept connections and
 * transfer pages of their own. This file makes no policy decisions.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>

#include "passive.h"

u64 xprtrdma_dma_map_page(struct ib_device *dev, struct page *page,
			  unsigned int dir)
{
	return ib_dma_map_page(dev, page, 0, PAGE_SIZE, dir);
}

void xprtrdma_dma_unmap_page(struct ib_device *dev, u64 addr, unsigned int dir)
{
	ib_dma_unmap_page(dev, addr, PAGE_SIZE, dir);
}

void *xprtrdma_page_address(const struct page *page)
{
	return page_address(page);
}

bool xprtrdma_pages_are_unshared(struct page **pages, unsigned int count)
{
	while (count--)
		if (page_count(pages[count]) != 1)
			return false;
	return true;
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

void xprtrdma_put_pages(struct page **pages, unsigned int count)
{
	release_pages(pages, count);
}

int xprtrdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	int err;

	rdma_lock_handler(id);
	err = rdma_accept(id, param);
	rdma_unlock_handler(id);
	return err;
}
