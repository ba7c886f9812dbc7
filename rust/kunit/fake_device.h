/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fake RDMA device for the KUnit suites. The RDMA device is simulated, and its
 * parent is a real platform device. The suites inject failures. Compiled only
 * into xprtrdma_rs_kunit.ko.
 */
#ifndef _XPRTRDMA_RS_FAKE_DEVICE_H
#define _XPRTRDMA_RS_FAKE_DEVICE_H

#include <linux/types.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

/* The calls that are counted, and that can be made to fail. */
enum fake_verb {
	FAKE_ALLOC_PD,
	FAKE_CREATE_CQ,
	FAKE_CREATE_QP,
	FAKE_DESTROY_QP,
	FAKE_MODIFY_QP,
	FAKE_ALLOC_MR,
	FAKE_MAP_MR_SG,
	FAKE_POST_SEND,
	FAKE_POST_RECV,
	FAKE_DMA_MAP,
	FAKE_DMA_MAP_SG,
	FAKE_CONNECT,
	FAKE_VERBS,
};

/*
 * How many objects of each type exist, and how many errors the driver has made
 * that a real device would not tolerate.
 */
struct fake_census {
	int pds;
	int cqs;
	int qps;
	int mrs;
	/* DMA mappings; a mapped list counts as one mapping. */
	int mappings;
	/* The device's references to connections of the connection manager. */
	int connections;
	int violations;
};

/* The peer's reply to a connect request. */
enum fake_peer {
	FAKE_ACCEPTS,
	FAKE_REFUSES,
	FAKE_IS_SILENT,
	/* The device gets no answer, retries, and fails after half a second. */
	FAKE_FAILS_LATE,
};

/* A work request that was posted to a send queue, as the device sees it. */
struct fake_posted {
	u32 opcode;
	u32 signalled;
	/* Whether the work request waits for all earlier RDMA Reads. */
	u32 fenced;
	/* Set for a Send: the address and length of its message. */
	u64 addr;
	u32 len;
	/*
	 * Set for a registration or an invalidation: the key and the access
	 * rights of the region.
	 */
	u32 key;
	u32 access;
};

struct net *fake_net(void);
/* Writes the device's IPv6 address (16 bytes) and returns its scope id. */
u32 fake_address(u8 *address);

/*
 * Resets the counter of the calls of this verb, and makes the nth call from now
 * on fail. If nth is 0, no call fails.
 */
void fake_fail(enum fake_verb verb, u32 nth);
u32 fake_calls(enum fake_verb verb);
void fake_census(struct fake_census *census);
/*
 * If on, each region that is mapped from now on covers one entry fewer than its
 * list has.
 */
void fake_short_maps(bool on);
/*
 * Sets the driver id that the device reports. If `refuses` is true, the device
 * refuses a received message that invalidates a key which belongs to no valid
 * region.
 */
void fake_invalidations(enum rdma_driver_id driver, bool refuses);

/* The limits that the device reports; it refuses requests beyond them. */
struct fake_limits {
	u32 send_sges;
	u32 pages;
	u32 wrs;
	u8 gaps;
};

/* Sets the device's limits until the next test begins. */
void fake_limits(const struct fake_limits *limits);
/*
 * Returns the number of breaches since the test began. There are two kinds of
 * breach: memory is returned to its owner while a valid key still gives access
 * to it, or a registration is executed for memory that was returned before.
 */
u32 fake_breaches(void);
/* Returns the number of completions since the test began. */
u32 fake_completions(void);

/*
 * Resets the device before each test. The device then has its default limits,
 * and the DMA layer does not limit the length of a list entry. The device then
 * has bounce buffers only if the module parameter "bounce" is set and the kernel
 * forces bounce buffers on all devices.
 */
void fake_begin(void);
/*
 * Sets whether the device uses the kernel's addresses to access memory. The
 * setting lasts until the next test begins. Must not be called while memory is
 * mapped for the device.
 */
void fake_virtual_addresses(bool on);
/* Sets the DMA layer's maximum length of a scatterlist entry, in bytes. */
void fake_max_entry(u32 bytes);
/*
 * Returns the length in bytes of the longest entry of the list that was last
 * mapped for a region.
 */
u32 fake_longest_entry(void);
/* Adds a reference to a page, like another user of the page. */
void fake_get_page(struct page *page);

/*
 * The operation that the device refuses, to simulate a device that is being
 * removed. If draining a queue needs this operation, the drain fails without
 * waiting.
 */
enum fake_death {
	FAKE_LIVES,
	FAKE_NO_MODIFY,
	FAKE_NO_POST,
};

void fake_dies(enum fake_death how);

/*
 * Makes the nth allocation of this thread fail. If nth is 0, no allocation fails.
 */
void fake_fail_alloc(u32 nth);
/* Ends the effect of fake_fail_alloc(); returns whether an allocation failed. */
bool fake_alloc_failed(void);

void fake_peer_answers(enum fake_peer how);
/*
 * Makes the peer of the queue pair send a late reply to the connect request, or
 * close the connection.
 */
int fake_peer_answer(struct ib_qp *qp, enum fake_peer how);
int fake_peer_closes(struct ib_qp *qp);
/* Makes the device report an event (enum ib_event_type) of a port. */
void fake_tells(u32 event, u32 port);
/* Copies the private data of the last connect request; returns its length. */
u32 fake_connect_data(void *buf, u32 size);

/*
 * The vendor's error code in the completion of each failed work request of a
 * send queue.
 */
#define FAKE_VENDOR_ERR	0x81

u32 fake_sends(struct ib_qp *qp);
u32 fake_receives(struct ib_qp *qp);
int fake_look(struct ib_qp *qp, u32 nth, struct fake_posted *posted);
/* Completes at most @count work requests of the send queue. Returns how many. */
u32 fake_complete(struct ib_qp *qp, u32 count, u32 status);

/*
 * Begins the work requests of the send queue in order, without waiting for the
 * peer's acknowledgements. Stops at a local invalidation that is not the oldest
 * work request. Registrations are executed. A registration or a local
 * invalidation completes only if it is the oldest work request. Returns the
 * number of work requests that this call or an earlier call has begun. Requests
 * that completed before this call are not counted.
 */
u32 fake_run_ahead(struct ib_qp *qp);
/*
 * Simulates late acknowledgements from the peer: executes all work requests again
 * that were executed but have not completed. Returns the number of these work
 * requests.
 */
u32 fake_send_again(struct ib_qp *qp);
/* Adds one to the counter of packets that the device could not send. */
void fake_sends_nothing(void);

/* A message that arrives from the peer. */
struct fake_message {
	const void *data;
	u32 len;
	u32 status;
	/* The key of the region that the message invalidates. */
	u32 rkey;
	u8 invalidates;
	u8 immediate;
	u8 written;
	/*
	 * Consumes the Receive that was posted last, instead of the Receive
	 * that was posted first.
	 */
	u8 last;
	/*
	 * The completion of the message is added to the queue only after the
	 * next poll. The device then reports an event, although no event was
	 * requested. When the driver requests an event the next time, the
	 * device does not report that this completion was missed. A removed
	 * device behaves like this.
	 */
	u8 late;
};

int fake_receive(struct ib_qp *qp, const struct fake_message *message);

/*
 * Memory that the device can access: bytes of a DMA mapping, and bytes of a
 * valid region.
 */
int fake_dma_read(u64 addr, void *buf, u32 len);
int fake_remote_write(u32 rkey, u64 iova, const void *buf, u32 len);
int fake_remote_read(u32 rkey, u64 iova, void *buf, u32 len);

#endif
