/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The other side of the KUnit suites: an RDMA device that is not there, on a
 * platform device that is, and injected failures. Only in xprtrdma_rs_kunit.ko.
 */
#ifndef _XPRTRDMA_RS_FAKE_DEVICE_H
#define _XPRTRDMA_RS_FAKE_DEVICE_H

#include <linux/types.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

/* What can be made to fail, and is counted. */
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

/* What is alive, and what the driver did that a device would not forgive. */
struct fake_census {
	int pds;
	int cqs;
	int qps;
	int mrs;
	/* Mappings, whether of one buffer or of a list. */
	int mappings;
	/* References to connections. */
	int connections;
	int violations;
};

/* How the peer answers a connect request. */
enum fake_peer {
	FAKE_ACCEPTS,
	FAKE_REFUSES,
	FAKE_IS_SILENT,
	/* Not the peer: the device tries for half a second, and fails. */
	FAKE_FAILS_LATE,
};

/* A posted work request of a send queue, as the device sees it. */
struct fake_posted {
	u32 opcode;
	u32 signalled;
	/* Of a Send. */
	u64 addr;
	u32 len;
	/* Of a registration or an invalidation. */
	u32 key;
	u32 access;
};

struct net *fake_net(void);
/* Writes the device's IPv6 address, 16 bytes; returns its scope. */
u32 fake_address(u8 *address);

/* Makes the nth call from now on fail (0: none), counts from zero again. */
void fake_fail(enum fake_verb verb, u32 nth);
u32 fake_calls(enum fake_verb verb);
void fake_census(struct fake_census *census);
/* Regions from now on cover one entry less than they are given. */
void fake_short_maps(bool on);
/*
 * Whose device it passes for, and whether it refuses a message that invalidates
 * a key that is not valid.
 */
void fake_invalidations(enum rdma_driver_id driver, bool refuses);

/* What an adapter offers; the device then refuses what goes beyond it. */
struct fake_limits {
	u32 send_sges;
	u32 pages;
	u32 wrs;
	u8 gaps;
};

/* Until the next test begins. */
void fake_limits(const struct fake_limits *limits);
/*
 * Since the test began: how often memory went back to its owner while a key
 * reached it, or a registration that was executed reached memory that was back.
 */
u32 fake_breaches(void);
/* Since the test began: entries of completion queues. */
u32 fake_completions(void);

/*
 * Before each test: whether the device has bounce buffers, which it has if the
 * parameter "bounce" is set and the kernel forces them on every device; no
 * limit of its own for the entries of a list; the device's own limits.
 */
void fake_begin(void);
/* Bytes of the longest entry of a list that the DMA layer takes. */
void fake_max_entry(u32 bytes);
/* Bytes of the longest entry of the last list that was mapped for a region. */
u32 fake_longest_entry(void);

/* What a device that is going away does no more; a drain of it does not wait. */
enum fake_death {
	FAKE_LIVES,
	FAKE_NO_MODIFY,
	FAKE_NO_POST,
};

void fake_dies(enum fake_death how);

/* Makes the nth allocation of this thread fail (0: none). */
void fake_fail_alloc(u32 nth);
/* Ends that; whether it has happened. */
bool fake_alloc_failed(void);

void fake_peer_answers(enum fake_peer how);
/* The peer of the queue pair answers late, or ends the connection. */
int fake_peer_answer(struct ib_qp *qp, enum fake_peer how);
int fake_peer_closes(struct ib_qp *qp);
/* The device tells an event of enum ib_event_type, of a port. */
void fake_tells(u32 event, u32 port);
/* Private data of the last connect request; its length. */
u32 fake_connect_data(void *buf, u32 size);

/* What the device says of the reason when a work request of a send queue fails. */
#define FAKE_VENDOR_ERR	0x81

u32 fake_sends(struct ib_qp *qp);
u32 fake_receives(struct ib_qp *qp);
int fake_look(struct ib_qp *qp, u32 nth, struct fake_posted *posted);
/* Completes up to count work requests of the send queue; how many. */
u32 fake_complete(struct ib_qp *qp, u32 count, u32 status);

/*
 * Begins everything in the send queue that may begin, though nothing is
 * acknowledged; how many work requests. What is local is executed, and over if it
 * is the oldest.
 */
u32 fake_run_ahead(struct ib_qp *qp);
/*
 * The peer's acknowledgements are late: everything that was begun and is not over
 * is executed again; how many work requests.
 */
u32 fake_send_again(struct ib_qp *qp);
/* A packet could not be sent. */
void fake_sends_nothing(void);

/* A message that arrives. */
struct fake_message {
	const void *data;
	u32 len;
	u32 status;
	/* Region that it invalidates. */
	u32 rkey;
	u8 invalidates;
	u8 immediate;
	u8 written;
	/* Takes the Receive posted last, not the first. */
	u8 last;
	/*
	 * Completes when others have been taken off the queue. The device reports
	 * it at once, though no report was requested. The next request for missed
	 * events does not tell of it. A dead device does the same.
	 */
	u8 late;
};

int fake_receive(struct ib_qp *qp, const struct fake_message *message);

/* What the device reaches: bytes of a mapping, bytes of a valid region. */
int fake_dma_read(u64 addr, void *buf, u32 len);
int fake_remote_write(u32 rkey, u64 iova, const void *buf, u32 len);
int fake_remote_read(u32 rkey, u64 iova, void *buf, u32 len);

#endif
