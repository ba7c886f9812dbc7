// SPDX-License-Identifier: GPL-2.0
/*
 * A fake RDMA device for the KUnit suites.
 *
 * The fake device is an iWARP device with its own network interface, so the
 * connection manager works with it. This file decides how the peer answers.
 * Memory is mapped for a platform device. So the fake device, unlike rxe and siw,
 * uses the kernel's DMA layer, with bounce buffers if the kernel has them. No work
 * request completes by itself: the suites decide which one completes, and when.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/refcount.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/swiotlb.h>
#include <net/addrconf.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>

#include "fake_device.h"

#define FAKE_LKEY 0x1000
#define FAKE_PAGES 300
#define FAKE_SGES 4
#define FAKE_MAX_WR 8192
#define FAKE_PRIVATE 64

struct fake_pd {
	struct ib_pd base;
};

struct fake_wqe {
	struct ib_cqe *cqe;
	struct fake_posted posted;
	struct ib_mr *mr;
	/*
	 * The work request was executed, but an earlier work request has not
	 * been acknowledged yet.
	 */
	bool done;
};

struct fake_ring {
	struct fake_wqe *entries;
	u32 size;
	u32 first;
	u32 count;
};

struct fake_cq {
	struct ib_cq base;
	struct ib_wc *entries;
	u32 size;
	u32 first;
	u32 count;
	bool armed;
	/*
	 * If has_late is set, the next poll that returns completions also adds
	 * the completion "late" to the queue, clears has_late and sets mute. If
	 * mute is set, the driver's next request for an event reports no missed
	 * completion, and clears mute.
	 */
	struct ib_wc late;
	bool has_late;
	bool mute;
};

struct fake_qp {
	struct ib_qp base;
	struct list_head list;
	struct fake_ring sq;
	struct fake_ring rq;
	bool error;
	struct iw_cm_id *cm_id;
	refcount_t refs;
	struct completion unused;
};

/* A page of a region, or a piece of any length if the region has gaps. */
struct fake_piece {
	u64 addr;
	u32 len;
};

struct fake_mr {
	struct ib_mr base;
	struct list_head list;
	bool valid;
	bool gaps;
	u32 access;
	u32 pieces;
	u32 depth;
	/* The key and the range of the last registration that was executed. */
	u32 registered;
	u64 iova;
	u64 length;
	/* The key with which the region was allocated. */
	u32 first_key;
	/* The list that was mapped for the region, until it is unmapped. */
	const struct scatterlist *list_mapped;
	/* Whether the peer has invalidated the region, or has tried to. */
	bool taken;
	struct fake_piece piece[] __counted_by(depth);
};

/* The only device. The suites run one after the other. */
static struct {
	struct ib_device *dev;
	struct platform_device *parent;
	struct net_device *netdev;
	/*
	 * Protects all later fields. The lock is a raw spinlock, because the
	 * handlers of kprobes acquire it.
	 */
	raw_spinlock_t lock;
	struct list_head qps;
	struct list_head mrs;
	struct fake_census census;
	u32 calls[FAKE_VERBS];
	u32 fails_at[FAKE_VERBS];
	bool short_maps;
	bool limited;
	u32 breaches;
	u32 completions;
	/*
	 * These counters start when the device is made, not when the test
	 * begins.
	 */
	u64 sent_again;
	u64 not_sent;
	u32 longest_entry;
	enum fake_death death;
	bool refuses_keys;
	enum fake_peer peer;
	u32 next_qpn;
	u32 next_key;
	u8 private[FAKE_PRIVATE];
	u32 private_len;
} fake;

#define to_cq(cq) container_of(cq, struct fake_cq, base)
#define to_qp(qp) container_of(qp, struct fake_qp, base)
#define to_mr(mr) container_of(mr, struct fake_mr, base)

static void violation(const char *what)
{
	pr_err("fake device: the driver must not %s\n", what);
	fake.census.violations++;
}

static void breach(const char *what)
{
	pr_err("fake device: a key works, and %s\n", what);
	fake.breaches++;
}

/* Counts a call. Returns true if the call has to fail. */
static bool fails_locked(enum fake_verb verb)
{
	return ++fake.calls[verb] == fake.fails_at[verb];
}

static bool fails(enum fake_verb verb)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return fails_locked(verb);
}

static void count(int *what, int by)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	*what += by;
}

struct net *fake_net(void)
{
	return &init_net;
}

static const u8 fake_mac[ETH_ALEN] = { 0x02, 0, 0, 0, 0, 0xfa };

u32 fake_address(u8 *address)
{
	static const struct in6_addr made_of_mac = {
		.s6_addr = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0,
			     0, 0, 0, 0xff, 0xfe, 0, 0, 0xfa },
	};

	memcpy(address, &made_of_mac, sizeof(made_of_mac));
	return fake.netdev->ifindex;
}

void fake_fail(enum fake_verb verb, u32 nth)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.calls[verb] = 0;
	fake.fails_at[verb] = nth;
}

u32 fake_calls(enum fake_verb verb)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return fake.calls[verb];
}

void fake_census(struct fake_census *census)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	*census = fake.census;
}

void fake_short_maps(bool on)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.short_maps = on;
}

static bool fake_bounce;
module_param_named(bounce, fake_bounce, bool, 0644);
MODULE_PARM_DESC(bounce, "the fake device's memory is bounced, on a kernel with swiotlb=force");

/* The machine's bounce buffers, or NULL if it has no bounce buffers. */
static struct io_tlb_mem *bounce_buffers;

static const struct fake_limits own_limits = {
	.send_sges = FAKE_SGES,
	.pages = FAKE_PAGES,
	.wrs = FAKE_MAX_WR,
	.gaps = true,
};

void fake_virtual_addresses(bool on)
{
	fake.dev->dma_device = on ? NULL : &fake.parent->dev;
}

void fake_begin(void)
{
	fake.parent->dev.dma_io_tlb_mem = fake_bounce ? bounce_buffers : NULL;
	fake_max_entry(UINT_MAX);
	/* The parent device is set up before the RDMA device exists. */
	if (fake.dev) {
		fake_virtual_addresses(false);
		fake_limits(&own_limits);
	}
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.limited = false;
	fake.breaches = 0;
	fake.completions = 0;
}

void fake_limits(const struct fake_limits *limits)
{
	struct ib_device_attr *attrs = &fake.dev->attrs;

	guard(raw_spinlock_irqsave)(&fake.lock);
	attrs->max_send_sge = limits->send_sges;
	attrs->max_fast_reg_page_list_len = limits->pages;
	attrs->max_qp_wr = limits->wrs;
	attrs->kernel_cap_flags &= ~IBK_SG_GAPS_REG;
	if (limits->gaps)
		attrs->kernel_cap_flags |= IBK_SG_GAPS_REG;
	fake.limited = true;
}

u32 fake_breaches(void)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return fake.breaches;
}

u32 fake_completions(void)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return fake.completions;
}

void fake_max_entry(u32 bytes)
{
	dma_set_max_seg_size(&fake.parent->dev, bytes);
}

u32 fake_longest_entry(void)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return fake.longest_entry;
}

void fake_get_page(struct page *page)
{
	get_page(page);
}

/*
 * Moves the queue pair to the error state, and does not wait for completions. If
 * draining fails, ib_core does not wait either, but it logs a warning.
 */
static void fake_drain(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	ib_modify_qp(qp, &attr, IB_QP_STATE);
}

void fake_dies(enum fake_death how)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.death = how;
	fake.dev->ops.drain_sq = how == FAKE_LIVES ? NULL : fake_drain;
	fake.dev->ops.drain_rq = how == FAKE_LIVES ? NULL : fake_drain;
}

void fake_invalidations(enum rdma_driver_id driver, bool refuses)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.dev->ops.driver_id = driver;
	fake.refuses_keys = refuses;
}

void fake_fail_alloc(u32 nth)
{
	current->fail_nth = nth;
}

bool fake_alloc_failed(void)
{
	bool failed = !current->fail_nth;

	current->fail_nth = 0;
	return failed;
}

/*
 * Kretprobes are set on the mapping functions of the kernel's DMA layer. If a
 * call has to fail, the probe gives the device a pool of bounce buffers that
 * has no free buffer.
 */
static struct io_tlb_mem no_bounce_buffers = { .force_bounce = true };

struct probe_data {
	struct io_tlb_mem *before;
	bool fails;
};

static int map_entry(struct kretprobe_instance *ri, struct pt_regs *regs,
		     enum fake_verb verb)
{
	struct probe_data *data = (struct probe_data *)ri->data;
	struct device *dev = (struct device *)regs_get_kernel_argument(regs, 0);

	if (dev != &fake.parent->dev)
		return 1;
	data->fails = fails(verb);
	if (data->fails) {
		data->before = dev->dma_io_tlb_mem;
		dev->dma_io_tlb_mem = &no_bounce_buffers;
	}
	return 0;
}

static void map_return(struct kretprobe_instance *ri, bool mapped)
{
	struct probe_data *data = (struct probe_data *)ri->data;

	if (data->fails)
		fake.parent->dev.dma_io_tlb_mem = data->before;
	if (mapped)
		count(&fake.census.mappings, 1);
}

static int map_page_entry(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	return map_entry(ri, regs, FAKE_DMA_MAP);
}

static int map_page_return(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	map_return(ri, regs_return_value(regs) != DMA_MAPPING_ERROR);
	return 0;
}

static int map_sg_entry(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	return map_entry(ri, regs, FAKE_DMA_MAP_SG);
}

static int map_sg_return(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	map_return(ri, regs_return_value(regs));
	return 0;
}

/*
 * The driver's tests set these parameters to make the mapping of memory fail.
 * Without them, the devices that the tests use map any memory.
 */
static bool fake_unmapped;
module_param_named(unmapped, fake_unmapped, bool, 0644);
MODULE_PARM_DESC(unmapped, "no device of the machine maps memory for a region");
static bool fake_unlisted;
module_param_named(unlisted, fake_unlisted, bool, 0644);
MODULE_PARM_DESC(unlisted, "no software device of the machine maps a list of memory");

static int region_entry(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	return !READ_ONCE(fake_unmapped);
}

static int region_return(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	/* The probed function returns the number of entries that it mapped. */
	regs_set_return_value(regs, 0);
	return 0;
}

#ifdef CONFIG_INFINIBAND_VIRT_DMA
static int virt_list_entry(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	return !READ_ONCE(fake_unlisted);
}
#endif

static int unmap_entry(struct kprobe *p, struct pt_regs *regs)
{
	if (regs_get_kernel_argument(regs, 0) ==
	    (unsigned long)&fake.parent->dev)
		count(&fake.census.mappings, -1);
	return 0;
}

/*
 * Returns whether the device behaves like rxe: a work request that is sent
 * again is executed again, and a fence waits for all earlier work requests.
 */
static bool executes_again(void)
{
	return fake.dev->ops.driver_id == RDMA_DRIVER_RXE;
}

/*
 * A device like rxe checks the memory of a region at each access. Other devices
 * check the memory only at the registration.
 */
static bool covers_bytes(const struct fake_mr *mr)
{
	return !executes_again() || READ_ONCE(mr->base.length);
}

/*
 * Returns whether a queue pair of the region's protection domain is
 * operational.
 */
static bool is_reached(const struct fake_mr *mr)
{
	struct fake_qp *qp;

	list_for_each_entry(qp, &fake.qps, list)
		if (qp->base.pd == mr->base.pd && !qp->error)
			return true;
	return false;
}

static int unmap_list_entry(struct kprobe *p, struct pt_regs *regs)
{
	unsigned long list = regs_get_kernel_argument(regs, 1);
	struct fake_mr *mr;

	unmap_entry(p, regs);
	guard(raw_spinlock_irqsave)(&fake.lock);
	list_for_each_entry(mr, &fake.mrs, list) {
		if (!list || (unsigned long)mr->list_mapped != list)
			continue;
		mr->list_mapped = NULL;
		if (mr->valid && covers_bytes(mr) && is_reached(mr))
			breach("its memory goes back");
	}
	return 0;
}

static struct kretprobe map_probes[] = {
	{
		.kp.symbol_name = "dma_map_page_attrs",
		.entry_handler = map_page_entry,
		.handler = map_page_return,
		.data_size = sizeof(struct probe_data),
	},
	{
		.kp.symbol_name = "dma_map_sg_attrs",
		.entry_handler = map_sg_entry,
		.handler = map_sg_return,
		.data_size = sizeof(struct probe_data),
	},
	{
		.kp.symbol_name = "ib_map_mr_sg",
		.entry_handler = region_entry,
		.handler = region_return,
	},
#ifdef CONFIG_INFINIBAND_VIRT_DMA
	{
		.kp.symbol_name = "ib_dma_virt_map_sg",
		.entry_handler = virt_list_entry,
		.handler = region_return,
	},
#endif
};

static struct kprobe unmap_probes[] = {
	{ .symbol_name = "dma_unmap_page_attrs", .pre_handler = unmap_entry },
	{ .symbol_name = "dma_unmap_sg_attrs", .pre_handler = unmap_list_entry },
};

/* Completion queues */

static void ring_bell(struct fake_cq *cq, bool ring)
{
	if (ring)
		cq->base.comp_handler(&cq->base, cq->base.cq_context);
}

/*
 * Adds a completion to the completion queue. Returns true if the caller must
 * call ring_bell() after the caller has released the lock.
 */
static bool push_wc(struct fake_cq *cq, const struct ib_wc *wc)
{
	bool ring = cq->armed;

	if (cq->count == cq->size) {
		violation("overrun a completion queue");
		return false;
	}
	cq->entries[(cq->first + cq->count++) % cq->size] = *wc;
	fake.completions++;
	cq->armed = false;
	return ring;
}

static int fake_create_cq(struct ib_cq *base, const struct ib_cq_init_attr *attr,
			  struct uverbs_attr_bundle *attrs)
{
	struct fake_cq *cq = to_cq(base);

	if (fails(FAKE_CREATE_CQ))
		return -EAGAIN;
	cq->entries = kvcalloc(attr->cqe, sizeof(*cq->entries), GFP_KERNEL);
	if (!cq->entries)
		return -ENOMEM;
	cq->size = attr->cqe;
	base->cqe = attr->cqe;
	count(&fake.census.cqs, 1);
	return 0;
}

static int fake_destroy_cq(struct ib_cq *base, struct ib_udata *udata)
{
	kvfree(to_cq(base)->entries);
	count(&fake.census.cqs, -1);
	return 0;
}

static int fake_poll_cq(struct ib_cq *base, int most, struct ib_wc *wc)
{
	struct fake_cq *cq = to_cq(base);
	bool late = false;
	int n;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		for (n = 0; n < most && cq->count; n++) {
			wc[n] = cq->entries[cq->first];
			cq->first = (cq->first + 1) % cq->size;
			cq->count--;
		}
		if (n && cq->has_late) {
			push_wc(cq, &cq->late);
			cq->has_late = false;
			cq->mute = true;
			late = true;
		}
	}
	ring_bell(cq, late);
	return n;
}

static int fake_req_notify_cq(struct ib_cq *base, enum ib_cq_notify_flags flags)
{
	struct fake_cq *cq = to_cq(base);

	guard(raw_spinlock_irqsave)(&fake.lock);
	cq->armed = true;
	if (cq->mute) {
		cq->mute = false;
		return 0;
	}
	return (flags & IB_CQ_REPORT_MISSED_EVENTS) && cq->count;
}

/* Queue pairs */

static int ring_init(struct fake_ring *ring, u32 size)
{
	ring->entries = kvcalloc(size, sizeof(*ring->entries), GFP_KERNEL);
	ring->size = size;
	return ring->entries ? 0 : -ENOMEM;
}

static struct fake_wqe *ring_push(struct fake_ring *ring)
{
	if (ring->count == ring->size)
		return NULL;
	return &ring->entries[(ring->first + ring->count++) % ring->size];
}

static struct fake_wqe *ring_pop(struct fake_ring *ring)
{
	struct fake_wqe *wqe = &ring->entries[ring->first];

	if (!ring->count)
		return NULL;
	ring->first = (ring->first + 1) % ring->size;
	ring->count--;
	return wqe;
}

static struct fake_wqe *ring_pop_last(struct fake_ring *ring)
{
	if (!ring->count)
		return NULL;
	return &ring->entries[(ring->first + --ring->count) % ring->size];
}

static enum ib_wc_opcode wc_opcode(u32 opcode)
{
	switch (opcode) {
	case IB_WR_REG_MR:
		return IB_WC_REG_MR;
	case IB_WR_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case IB_WR_RDMA_WRITE:
		return IB_WC_RDMA_WRITE;
	default:
		return IB_WC_SEND;
	}
}

static struct fake_mr *find_mr(u32 key)
{
	struct fake_mr *mr;

	list_for_each_entry(mr, &fake.mrs, list)
		if (mr->base.rkey == key)
			return mr;
	return NULL;
}

/*
 * Executes a work request. Returns false if the device refuses the work
 * request. In this case the queue pair fails.
 */
static bool execute(const struct fake_wqe *wqe)
{
	struct fake_mr *mr;

	if (wqe->posted.opcode == IB_WR_REG_MR) {
		mr = to_mr(wqe->mr);
		if (mr->valid && executes_again())
			return false;
		if (mr->valid)
			violation("register a region that is valid");
		if (mr->base.rkey != wqe->posted.key && !executes_again())
			violation("register a region with another key");
		if ((wqe->posted.key ^ mr->first_key) & ~0xffU)
			violation("change more of a key than its octet");
		if (mr->base.iova + mr->base.length < mr->base.iova)
			violation("register beyond the last address");
		if (!mr->list_mapped && covers_bytes(mr))
			breach("its memory is back");
		mr->valid = true;
		mr->registered = wqe->posted.key;
		mr->iova = mr->base.iova;
		mr->length = mr->base.length;
		mr->taken = false;
		mr->access = wqe->posted.access;
	} else if (wqe->posted.opcode == IB_WR_LOCAL_INV) {
		mr = find_mr(wqe->posted.key);
		if (mr && !mr->registered && executes_again())
			return true;
		if (!mr || (!mr->valid && !mr->taken))
			violation("invalidate a region that is not valid");
		else
			mr->valid = false;
	}
	return true;
}

static bool is_local(const struct fake_wqe *wqe)
{
	return wqe->posted.opcode == IB_WR_REG_MR ||
	       wqe->posted.opcode == IB_WR_LOCAL_INV;
}

/*
 * Removes a work request from the send queue. Returns true if the caller must
 * call ring_bell().
 */
static bool complete_one(struct fake_qp *qp, const struct fake_wqe *wqe,
			 u32 status)
{
	struct ib_wc wc = {
		.wr_cqe = wqe->cqe,
		.status = status,
		.qp = &qp->base,
	};

	/*
	 * A completion has a valid opcode only if it succeeded, and a vendor
	 * error only if it failed.
	 */
	if (status == IB_WC_SUCCESS)
		wc.opcode = wc_opcode(wqe->posted.opcode);
	else
		wc.vendor_err = FAKE_VENDOR_ERR;
	if (status == IB_WC_SUCCESS && !wqe->done && !execute(wqe))
		violation("register a region that is valid");
	if (!wqe->posted.signalled && status == IB_WC_SUCCESS)
		return false;
	return push_wc(to_cq(qp->base.send_cq), &wc);
}

static bool flush(struct fake_qp *qp)
{
	struct ib_wc wc = { .status = IB_WC_WR_FLUSH_ERR, .qp = &qp->base };
	struct fake_wqe *wqe;
	bool ring = false;

	qp->error = true;
	while ((wqe = ring_pop(&qp->sq)))
		ring |= complete_one(qp, wqe, IB_WC_WR_FLUSH_ERR);
	while ((wqe = ring_pop(&qp->rq))) {
		wc.wr_cqe = wqe->cqe;
		wc.opcode = IB_WC_RECV;
		ring |= push_wc(to_cq(qp->base.recv_cq), &wc);
	}
	return ring;
}

static int tell(struct iw_cm_id *cm_id, enum iw_cm_event_type type, int status)
{
	struct iw_cm_event event = {
		.event = type,
		.status = status,
		.local_addr = cm_id->m_local_addr,
		.remote_addr = cm_id->m_remote_addr,
	};
	u8 greeting[] = "hello";

	if (type == IW_CM_EVENT_CONNECT_REPLY && !status) {
		event.private_data = greeting;
		event.private_data_len = sizeof(greeting);
		event.ird = 4;
		event.ord = 8;
	}
	return cm_id->event_handler(cm_id, &event);
}

/*
 * Reports the end of the connection to the connection manager. A second call
 * reports nothing.
 */
static void close_connection(struct fake_qp *qp)
{
	struct iw_cm_id *cm_id;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		cm_id = qp->cm_id;
		qp->cm_id = NULL;
		if (cm_id)
			fake.census.connections--;
	}
	if (cm_id) {
		tell(cm_id, IW_CM_EVENT_CLOSE, 0);
		cm_id->rem_ref(cm_id);
	}
}

static int fake_create_qp(struct ib_qp *base, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata)
{
	struct fake_qp *qp = to_qp(base);
	int err;

	if (fails(FAKE_CREATE_QP))
		return -EAGAIN;
	if (fake.limited && (attr->cap.max_send_wr > fake.dev->attrs.max_qp_wr ||
			     attr->cap.max_send_sge > fake.dev->attrs.max_send_sge))
		return -EINVAL;
	err = ring_init(&qp->sq, attr->cap.max_send_wr);
	if (!err)
		err = ring_init(&qp->rq, attr->cap.max_recv_wr);
	if (err) {
		kvfree(qp->sq.entries);
		return err;
	}
	refcount_set(&qp->refs, 1);
	init_completion(&qp->unused);
	guard(raw_spinlock_irqsave)(&fake.lock);
	base->qp_num = ++fake.next_qpn;
	list_add(&qp->list, &fake.qps);
	fake.census.qps++;
	return 0;
}

static int fake_modify_qp(struct ib_qp *base, struct ib_qp_attr *attr, int mask,
			  struct ib_udata *udata)
{
	struct fake_qp *qp = to_qp(base);
	bool ring;

	if (fails(FAKE_MODIFY_QP))
		return -EAGAIN;
	if (fake.death == FAKE_NO_MODIFY)
		return -ETIMEDOUT;
	if (!(mask & IB_QP_STATE))
		return 0;
	if (attr->qp_state != IB_QPS_ERR && attr->qp_state != IB_QPS_SQD)
		return 0;
	scoped_guard(raw_spinlock_irqsave, &fake.lock)
		ring = flush(qp);
	ring_bell(to_cq(base->send_cq), ring);
	close_connection(qp);
	return 0;
}

static void fake_put_qp(struct ib_qp *base)
{
	struct fake_qp *qp = to_qp(base);

	if (refcount_dec_and_test(&qp->refs))
		complete(&qp->unused);
}

static void fake_get_qp_ref(struct ib_qp *base)
{
	refcount_inc(&to_qp(base)->refs);
}

static struct ib_qp *fake_get_qp(struct ib_device *dev, int qpn)
{
	struct fake_qp *qp;

	guard(raw_spinlock_irqsave)(&fake.lock);
	list_for_each_entry(qp, &fake.qps, list)
		if (qp->base.qp_num == qpn)
			return &qp->base;
	return NULL;
}

static int fake_destroy_qp(struct ib_qp *base, struct ib_udata *udata)
{
	struct fake_qp *qp = to_qp(base);

	if (fails(FAKE_DESTROY_QP))
		return -EAGAIN;
	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		/*
		 * By now a drain has flushed everything, or nothing was ever
		 * posted.
		 */
		if (fake.death == FAKE_LIVES && (qp->sq.count || qp->rq.count))
			violation("destroy a queue pair with work posted");
		list_del(&qp->list);
	}
	close_connection(qp);
	fake_put_qp(base);
	wait_for_completion(&qp->unused);
	kvfree(qp->sq.entries);
	kvfree(qp->rq.entries);
	count(&fake.census.qps, -1);
	return 0;
}

static int fake_post_send(struct ib_qp *base, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad)
{
	struct fake_qp *qp = to_qp(base);
	bool ring = false;
	int err = 0;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		if (fails_locked(FAKE_POST_SEND))
			err = -EAGAIN;
		for (; wr && !err; wr = wr->next) {
			struct fake_wqe *wqe = ring_push(&qp->sq);

			if (!wqe) {
				violation("overrun a send queue");
				err = -ENOSPC;
				break;
			}
			*wqe = (struct fake_wqe) {
				.cqe = wr->wr_cqe,
				.posted.opcode = wr->opcode,
				.posted.signalled = !!(wr->send_flags & IB_SEND_SIGNALED),
				.posted.fenced = !!(wr->send_flags & IB_SEND_FENCE),
			};
			if (fake.limited && wr->num_sge > fake.dev->attrs.max_send_sge)
				violation("send more pieces than the device takes");
			if (wr->num_sge) {
				wqe->posted.addr = wr->sg_list->addr;
				wqe->posted.len = wr->sg_list->length;
				if (wr->sg_list->lkey != FAKE_LKEY)
					violation("use a wrong local key");
			}
			if (wr->opcode == IB_WR_LOCAL_INV)
				wqe->posted.key = wr->ex.invalidate_rkey;
			if (wr->opcode == IB_WR_REG_MR) {
				wqe->mr = reg_wr(wr)->mr;
				wqe->posted.key = reg_wr(wr)->key;
				wqe->posted.access = reg_wr(wr)->access;
			}
		}
		if (qp->error)
			ring = flush(qp);
	}
	if (err && bad)
		*bad = wr;
	ring_bell(to_cq(base->send_cq), ring);
	return err;
}

static int fake_post_recv(struct ib_qp *base, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad)
{
	struct fake_qp *qp = to_qp(base);
	bool ring = false;
	int err = 0;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		if (fails_locked(FAKE_POST_RECV))
			err = -EAGAIN;
		for (; wr && !err; wr = wr->next) {
			struct fake_wqe *wqe = ring_push(&qp->rq);

			if (!wqe) {
				violation("overrun a receive queue");
				err = -ENOSPC;
				break;
			}
			*wqe = (struct fake_wqe) { .cqe = wr->wr_cqe };
			if (wr->num_sge) {
				wqe->posted.addr = wr->sg_list->addr;
				wqe->posted.len = wr->sg_list->length;
				if (wr->sg_list->lkey != FAKE_LKEY)
					violation("use a wrong local key");
			}
		}
		if (qp->error)
			ring = flush(qp);
	}
	if (err && bad)
		*bad = wr;
	ring_bell(to_cq(base->recv_cq), ring);
	return err;
}

/* Protection domains and memory regions */

static int fake_alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	if (fails(FAKE_ALLOC_PD))
		return -EAGAIN;
	count(&fake.census.pds, 1);
	return 0;
}

static int fake_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	count(&fake.census.pds, -1);
	return 0;
}

static struct ib_mr *fake_alloc_mr(struct ib_pd *pd, enum ib_mr_type type,
				   u32 depth)
{
	struct fake_mr *mr;

	if (fails(FAKE_ALLOC_MR))
		return ERR_PTR(-EAGAIN);
	if (fake.limited && depth > fake.dev->attrs.max_fast_reg_page_list_len)
		return ERR_PTR(-EINVAL);
	mr = kzalloc(struct_size(mr, piece, depth), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->depth = depth;
	mr->gaps = type == IB_MR_TYPE_SG_GAPS;
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.next_key += 0x100;
	mr->base.lkey = fake.next_key;
	mr->base.rkey = fake.next_key;
	mr->first_key = fake.next_key;
	list_add(&mr->list, &fake.mrs);
	fake.census.mrs++;
	return &mr->base;
}

static int fake_dereg_mr(struct ib_mr *base, struct ib_udata *udata)
{
	struct fake_mr *mr = to_mr(base);
	struct fake_qp *qp;
	u32 i;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		list_for_each_entry(qp, &fake.qps, list)
			for (i = 0; i < qp->sq.count; i++)
				if (qp->sq.entries[(qp->sq.first + i) % qp->sq.size].mr == base)
					violation("deregister a region that is posted");
		list_del(&mr->list);
		fake.census.mrs--;
	}
	kfree(mr);
	return 0;
}

static int add_piece(struct fake_mr *mr, u64 addr, u32 len)
{
	if (mr->pieces == mr->depth)
		return -ENOMEM;
	mr->piece[mr->pieces++] = (struct fake_piece) { addr, len };
	return 0;
}

static int set_page(struct ib_mr *base, u64 addr)
{
	return add_piece(to_mr(base), addr, PAGE_SIZE);
}

static int set_pieces(struct fake_mr *mr, struct scatterlist *list, int nents)
{
	struct scatterlist *sg;
	int i;

	mr->base.iova = sg_dma_address(list);
	mr->base.length = 0;
	for_each_sg(list, sg, nents, i) {
		if (add_piece(mr, sg_dma_address(sg), sg_dma_len(sg)))
			break;
		mr->base.length += sg_dma_len(sg);
	}
	return i;
}

static int fake_map_mr_sg(struct ib_mr *base, struct scatterlist *sg, int nents,
			  unsigned int *offset)
{
	struct fake_mr *mr = to_mr(base);
	struct scatterlist *entry;
	u32 longest = 0;
	int i, used;

	if (fails(FAKE_MAP_MR_SG))
		return -EAGAIN;
	for_each_sg(sg, entry, nents, i)
		longest = max(longest, sg_dma_len(entry));
	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		fake.longest_entry = longest;
		mr->list_mapped = sg;
	}
	mr->pieces = 0;
	if (mr->gaps)
		used = set_pieces(mr, sg, nents);
	else
		used = ib_sg_to_pages(base, sg, nents, offset, set_page);
	if (used > 0 && fake.short_maps)
		used--;
	return used;
}

static struct ib_mr *fake_get_dma_mr(struct ib_pd *pd, int access)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static struct ib_mr *fake_reg_user_mr(struct ib_pd *pd, u64 start, u64 len,
				      u64 virt, int access, struct ib_dmah *dmah,
				      struct ib_udata *udata)
{
	return ERR_PTR(-EOPNOTSUPP);
}

/* Connections */

/* Drops the device's reference to a connection that was not established. */
static void forget_connection(struct fake_qp *qp, struct iw_cm_id *cm_id)
{
	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		qp->cm_id = NULL;
		fake.census.connections--;
	}
	cm_id->rem_ref(cm_id);
}

int fake_peer_answer(struct ib_qp *base, enum fake_peer how)
{
	struct fake_qp *qp = to_qp(base);
	struct iw_cm_id *cm_id = qp->cm_id;
	int err = 0;

	if (!cm_id)
		return -ENOTCONN;
	if (how == FAKE_ACCEPTS)
		err = tell(cm_id, IW_CM_EVENT_CONNECT_REPLY, 0);
	else if (how == FAKE_REFUSES)
		err = tell(cm_id, IW_CM_EVENT_CONNECT_REPLY, -ECONNREFUSED);
	if (err || how == FAKE_REFUSES)
		forget_connection(qp, cm_id);
	return err;
}

int fake_peer_closes(struct ib_qp *base)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return fake_modify_qp(base, &attr, IB_QP_STATE, NULL);
}

void fake_peer_answers(enum fake_peer how)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.peer = how;
}

void fake_tells(u32 event, u32 port)
{
	struct ib_event told = {
		.device = fake.dev,
		.element.port_num = port,
		.event = event,
	};

	ib_dispatch_event(&told);
}

u32 fake_connect_data(void *buf, u32 size)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	memcpy(buf, fake.private, min(size, fake.private_len));
	return fake.private_len;
}

static int fake_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct ib_qp *base = fake_get_qp(cm_id->device, param->qpn);
	struct fake_qp *qp;

	if (!base || fails(FAKE_CONNECT))
		return -EAGAIN;
	if (fake.peer == FAKE_FAILS_LATE) {
		msleep(500);
		return -EAGAIN;
	}
	qp = to_qp(base);
	cm_id->add_ref(cm_id);
	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		qp->cm_id = cm_id;
		fake.census.connections++;
		fake.private_len = min_t(u32, param->private_data_len, FAKE_PRIVATE);
		memcpy(fake.private, param->private_data, fake.private_len);
	}
	return fake_peer_answer(base, fake.peer);
}

static int fake_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	return -EOPNOTSUPP;
}

static int fake_iw_reject(struct iw_cm_id *cm_id, const void *data, u8 len)
{
	return -EOPNOTSUPP;
}

static int fake_iw_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	return -EOPNOTSUPP;
}

static int fake_iw_destroy_listen(struct iw_cm_id *cm_id)
{
	return 0;
}

/* Functions with which the suites control the device */

u32 fake_sends(struct ib_qp *qp)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return to_qp(qp)->sq.count;
}

u32 fake_receives(struct ib_qp *qp)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	return to_qp(qp)->rq.count;
}

int fake_look(struct ib_qp *base, u32 nth, struct fake_posted *posted)
{
	struct fake_ring *ring = &to_qp(base)->sq;

	guard(raw_spinlock_irqsave)(&fake.lock);
	if (nth >= ring->count)
		return -ENOENT;
	*posted = ring->entries[(ring->first + nth) % ring->size].posted;
	return 0;
}

u32 fake_complete(struct ib_qp *base, u32 most, u32 status)
{
	struct fake_qp *qp = to_qp(base);
	bool ring = false;
	u32 done = 0;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		while (done < most && qp->sq.count) {
			ring |= complete_one(qp, ring_pop(&qp->sq), status);
			done++;
			if (status != IB_WC_SUCCESS)
				ring |= flush(qp);
		}
	}
	ring_bell(to_cq(base->send_cq), ring);
	return done;
}

u32 fake_run_ahead(struct ib_qp *base)
{
	struct fake_ring *ring = &to_qp(base)->sq;
	struct fake_wqe *wqe;
	u32 i, at = 0;
	bool bell = false;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		for (i = 0; i < ring->count; i++) {
			wqe = &ring->entries[(ring->first + i) % ring->size];
			if (wqe->posted.opcode == IB_WR_LOCAL_INV && i)
				break;
			at++;
			if (!is_local(wqe) || wqe->done)
				continue;
			if (i) {
				if (!execute(wqe)) {
					bell |= flush(to_qp(base));
					break;
				}
				wqe->done = true;
				continue;
			}
			/*
			 * The work request is the oldest in the queue, so it
			 * completes.
			 */
			bell |= complete_one(to_qp(base), ring_pop(ring), IB_WC_SUCCESS);
			i--;
		}
	}
	ring_bell(to_cq(base->send_cq), bell);
	return at;
}

void fake_sends_nothing(void)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	fake.not_sent++;
}

u32 fake_send_again(struct ib_qp *base)
{
	struct fake_ring *ring = &to_qp(base)->sq;
	struct fake_wqe *wqe;
	u32 i, again = 0;
	bool bell = false;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		fake.sent_again++;
		for (i = 0; i < ring->count; i++) {
			wqe = &ring->entries[(ring->first + i) % ring->size];
			if (!wqe->done)
				continue;
			again++;
			if (execute(wqe))
				continue;
			/*
			 * The device behaves like rxe: it flushes all work
			 * requests, and reports no other error for the refused
			 * work request.
			 */
			bell = flush(to_qp(base));
			break;
		}
	}
	ring_bell(to_cq(base->send_cq), bell);
	return again;
}

/* Returns the memory at a DMA address, which may be in a bounce buffer. */
static void *device_memory(u64 addr)
{
	if (ib_uses_virt_dma(fake.dev))
		return (void *)(uintptr_t)addr;
	return phys_to_virt(dma_to_phys(&fake.parent->dev, addr));
}

/*
 * Executes the invalidation that a message requests. Returns false if the
 * device refuses it. The region is looked up by all bytes of the key except the
 * lowest byte, which the driver may change. A device that refuses no
 * invalidation, like siw, does not check the lowest byte at all.
 */
static bool invalidate(u32 key)
{
	struct fake_mr *mr;

	list_for_each_entry(mr, &fake.mrs, list) {
		if (mr->base.rkey >> 8 != key >> 8)
			continue;
		if (fake.refuses_keys && (!mr->valid || mr->registered != key))
			return false;
		mr->valid = false;
		mr->taken = true;
		return true;
	}
	return !fake.refuses_keys;
}

int fake_receive(struct ib_qp *base, const struct fake_message *message)
{
	struct fake_qp *qp = to_qp(base);
	struct ib_wc wc = {
		.status = message->status,
		.opcode = message->written ? IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
		.byte_len = message->len,
		.qp = base,
	};
	struct fake_wqe *wqe;
	bool ring;

	scoped_guard(raw_spinlock_irqsave, &fake.lock) {
		wqe = message->last ? ring_pop_last(&qp->rq) : ring_pop(&qp->rq);
		if (!wqe)
			return -ENOBUFS;
		if (!message->written && message->len > wqe->posted.len)
			return -EMSGSIZE;
		if (!message->written)
			memcpy(device_memory(wqe->posted.addr), message->data,
			       message->len);
		wc.wr_cqe = wqe->cqe;
		if (message->immediate)
			wc.wc_flags |= IB_WC_WITH_IMM;
		if (message->invalidates) {
			wc.wc_flags |= IB_WC_WITH_INVALIDATE;
			wc.ex.invalidate_rkey = message->rkey;
			if (!invalidate(message->rkey))
				wc.status = IB_WC_REM_INV_REQ_ERR;
		}
		if (message->late) {
			to_cq(base->recv_cq)->late = wc;
			to_cq(base->recv_cq)->has_late = true;
			return 0;
		}
		ring = push_wc(to_cq(base->recv_cq), &wc);
		if (wc.status != IB_WC_SUCCESS)
			ring |= flush(qp);
	}
	ring_bell(to_cq(base->recv_cq), ring);
	return 0;
}

int fake_dma_read(u64 addr, void *buf, u32 len)
{
	memcpy(buf, device_memory(addr), len);
	return 0;
}

/* Finds a region by the key of the registration that was last executed. */
static struct fake_mr *find_registered(u32 key)
{
	struct fake_mr *mr;

	list_for_each_entry(mr, &fake.mrs, list)
		if (mr->registered == key)
			return mr;
	return NULL;
}

static int remote_access(u32 rkey, u64 iova, void *buf, u32 len, u32 right)
{
	struct fake_mr *mr;
	u64 first, length, skip;
	u32 i, part;

	guard(raw_spinlock_irqsave)(&fake.lock);
	mr = find_registered(rkey);
	if (!mr || !mr->valid || !(mr->access & right))
		return -EACCES;
	first = executes_again() ? mr->base.iova : mr->iova;
	length = executes_again() ? READ_ONCE(mr->base.length) : mr->length;
	if (iova < first || iova - first + len > length)
		return -ERANGE;
	skip = iova - first;
	/*
	 * Each page of the region is mapped from the start of the page, so the
	 * offset of the first byte in its page is added.
	 */
	if (!mr->gaps)
		skip += first & ~PAGE_MASK;
	for (i = 0; i < mr->pieces && len; i++) {
		struct fake_piece *piece = &mr->piece[i];
		void *there = device_memory(piece->addr) + skip;

		if (skip >= piece->len) {
			skip -= piece->len;
			continue;
		}
		part = min_t(u32, len, piece->len - skip);
		if (right == IB_ACCESS_REMOTE_WRITE)
			memcpy(there, buf, part);
		else
			memcpy(buf, there, part);
		buf += part;
		len -= part;
		skip = 0;
	}
	return len ? -ERANGE : 0;
}

int fake_remote_write(u32 rkey, u64 iova, const void *buf, u32 len)
{
	return remote_access(rkey, iova, (void *)buf, len, IB_ACCESS_REMOTE_WRITE);
}

int fake_remote_read(u32 rkey, u64 iova, void *buf, u32 len)
{
	return remote_access(rkey, iova, buf, len, IB_ACCESS_REMOTE_READ);
}

/* Verbs of the device itself */

static int fake_query_device(struct ib_device *dev, struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	attr->max_qp = 64;
	attr->max_qp_wr = FAKE_MAX_WR;
	attr->max_cq = 64;
	attr->max_cqe = 2 * FAKE_MAX_WR;
	attr->max_mr = 1024;
	attr->max_pd = 64;
	attr->max_send_sge = FAKE_SGES;
	attr->max_recv_sge = 4;
	attr->max_sge_rd = 1;
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 16;
	attr->max_fast_reg_page_list_len = FAKE_PAGES;
	attr->device_cap_flags = IB_DEVICE_MEM_MGT_EXTENSIONS;
	attr->kernel_cap_flags = IBK_LOCAL_DMA_LKEY | IBK_SG_GAPS_REG;
	return 0;
}

static int fake_query_port(struct ib_device *dev, u32 port,
			   struct ib_port_attr *attr)
{
	attr->gid_tbl_len = 1;
	attr->max_msg_sz = U32_MAX;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->active_width = IB_WIDTH_1X;
	attr->active_speed = IB_SPEED_SDR;
	return 0;
}

static int fake_get_port_immutable(struct ib_device *dev, u32 port,
				   struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->core_cap_flags = RDMA_CORE_PORT_IWARP;
	return 0;
}

static int fake_query_gid(struct ib_device *dev, u32 port, int index,
			  union ib_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	ether_addr_copy(gid->raw, fake_mac);
	return 0;
}

/* The same counters as those of rxe. */
static const struct rdma_stat_desc fake_counters[] = {
	{ .name = "completer_retry_err" },
	{ .name = "send_err" },
};

static struct rdma_hw_stats *fake_alloc_hw_port_stats(struct ib_device *dev,
						      u32 port)
{
	return rdma_alloc_hw_stats_struct(fake_counters,
					  ARRAY_SIZE(fake_counters),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int fake_get_hw_stats(struct ib_device *dev, struct rdma_hw_stats *stats,
			     u32 port, int index)
{
	guard(raw_spinlock_irqsave)(&fake.lock);
	stats->value[0] = fake.sent_again;
	stats->value[1] = fake.not_sent;
	return ARRAY_SIZE(fake_counters);
}

static const struct ib_device_ops fake_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,

	.alloc_hw_port_stats = fake_alloc_hw_port_stats,
	.alloc_mr = fake_alloc_mr,
	.alloc_pd = fake_alloc_pd,
	.create_cq = fake_create_cq,
	.create_qp = fake_create_qp,
	.dealloc_pd = fake_dealloc_pd,
	.dereg_mr = fake_dereg_mr,
	.destroy_cq = fake_destroy_cq,
	.destroy_qp = fake_destroy_qp,
	.get_dma_mr = fake_get_dma_mr,
	.get_hw_stats = fake_get_hw_stats,
	.get_port_immutable = fake_get_port_immutable,
	.iw_accept = fake_iw_accept,
	.iw_add_ref = fake_get_qp_ref,
	.iw_connect = fake_iw_connect,
	.iw_create_listen = fake_iw_create_listen,
	.iw_destroy_listen = fake_iw_destroy_listen,
	.iw_get_qp = fake_get_qp,
	.iw_reject = fake_iw_reject,
	.iw_rem_ref = fake_put_qp,
	.map_mr_sg = fake_map_mr_sg,
	.modify_qp = fake_modify_qp,
	.poll_cq = fake_poll_cq,
	.post_recv = fake_post_recv,
	.post_send = fake_post_send,
	.query_device = fake_query_device,
	.query_gid = fake_query_gid,
	.query_port = fake_query_port,
	.reg_user_mr = fake_reg_user_mr,
	.req_notify_cq = fake_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, fake_cq, base),
	INIT_RDMA_OBJ_SIZE(ib_pd, fake_pd, base),
	INIT_RDMA_OBJ_SIZE(ib_qp, fake_qp, base),
};

static int make_device(void)
{
	struct ib_device *dev;
	int err;

	dev = _ib_alloc_device(sizeof(*dev), &init_net);
	if (!dev)
		return -ENOMEM;
	dev->node_type = RDMA_NODE_RNIC;
	dev->phys_port_cnt = 1;
	dev->num_comp_vectors = 1;
	dev->local_dma_lkey = FAKE_LKEY;
	dev->node_guid = cpu_to_be64(0x02000000000000faULL);
	dev->iw_driver_flags = IW_F_NO_PORT_MAP;
	strscpy(dev->iw_ifname, fake.netdev->name);
	ib_set_device_ops(dev, &fake_ops);
	err = ib_device_set_netdev(dev, fake.netdev, 1);
	if (!err)
		err = ib_register_device(dev, "fake%d", &fake.parent->dev);
	if (err) {
		ib_dealloc_device(dev);
		return err;
	}
	fake.dev = dev;
	return 0;
}

static netdev_tx_t fake_xmit(struct sk_buff *skb, struct net_device *netdev)
{
	dev_kfree_skb(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops fake_netdev_ops = {
	.ndo_start_xmit = fake_xmit,
};

static void remove_interface(void)
{
	unregister_netdev(fake.netdev);
	free_netdev(fake.netdev);
}

/*
 * Makes the network interface, which gets a link-local address when it is up.
 */
static int make_interface(void)
{
	struct net_device *netdev = alloc_etherdev(0);
	struct in6_addr address;
	int err, tries;

	if (!netdev)
		return -ENOMEM;
	strscpy(netdev->name, "fake%d");
	netdev->netdev_ops = &fake_netdev_ops;
	/*
	 * No other host uses the address of this interface, so neighbour
	 * discovery is not needed.
	 */
	netdev->flags |= IFF_NOARP;
	eth_hw_addr_set(netdev, fake_mac);
	err = register_netdev(netdev);
	if (err) {
		free_netdev(netdev);
		return err;
	}
	fake.netdev = netdev;
	rtnl_lock();
	err = dev_open(netdev, NULL);
	rtnl_unlock();
	fake_address(address.s6_addr);
	for (tries = 0; !err; tries++) {
		if (ipv6_chk_addr(&init_net, &address, netdev, 1))
			return 0;
		if (tries == 1000)
			err = -EADDRNOTAVAIL;
		msleep(20);
	}
	remove_interface();
	return err;
}

static void remove_probes(u32 maps, u32 unmaps)
{
	while (maps)
		unregister_kretprobe(&map_probes[--maps]);
	while (unmaps)
		unregister_kprobe(&unmap_probes[--unmaps]);
}

static int make_probes(void)
{
	u32 maps, unmaps;
	int err;

	for (maps = 0; maps < ARRAY_SIZE(map_probes); maps++) {
		err = register_kretprobe(&map_probes[maps]);
		if (err) {
			remove_probes(maps, 0);
			return err;
		}
	}
	for (unmaps = 0; unmaps < ARRAY_SIZE(unmap_probes); unmaps++) {
		err = register_kprobe(&unmap_probes[unmaps]);
		if (err) {
			remove_probes(maps, unmaps);
			return err;
		}
	}
	return 0;
}

static int __init fake_init(void)
{
	int err;

	raw_spin_lock_init(&fake.lock);
	INIT_LIST_HEAD(&fake.qps);
	INIT_LIST_HEAD(&fake.mrs);
	fake.parent = platform_device_register_simple("fake-rdma", -1, NULL, 0);
	if (IS_ERR(fake.parent))
		return PTR_ERR(fake.parent);
	err = dma_coerce_mask_and_coherent(&fake.parent->dev, DMA_BIT_MASK(64));
	if (err)
		goto no_interface;
	/*
	 * The data in a bounce buffer have the same offset in a page as in the
	 * original memory.
	 */
	dma_set_min_align_mask(&fake.parent->dev, PAGE_SIZE - 1);
	bounce_buffers = fake.parent->dev.dma_io_tlb_mem;
	fake_begin();
	err = make_interface();
	if (err)
		goto no_interface;
	err = make_probes();
	if (err)
		goto no_probes;
	err = make_device();
	if (err)
		goto no_device;
	return 0;

no_device:
	remove_probes(ARRAY_SIZE(map_probes), ARRAY_SIZE(unmap_probes));
no_probes:
	remove_interface();
no_interface:
	platform_device_unregister(fake.parent);
	return err;
}

static void __exit fake_exit(void)
{
	ib_unregister_device(fake.dev);
	ib_dealloc_device(fake.dev);
	remove_probes(ARRAY_SIZE(map_probes), ARRAY_SIZE(unmap_probes));
	remove_interface();
	platform_device_unregister(fake.parent);
}

module_init(fake_init);
module_exit(fake_exit);
MODULE_AUTHOR("The xprtrdma_rs developers");
MODULE_DESCRIPTION("KUnit suites of the RPC-over-RDMA client transport");
MODULE_LICENSE("GPL");
