/* SPDX-License-Identifier: GPL-2.0 */
/* Prototypes of the C code that only the RDS module has; see helpers.h. */
#ifndef _XPRTRDMA_RS_RDS_H
#define _XPRTRDMA_RS_RDS_H

#include <linux/list.h>
#include <linux/types.h>
#include <rds.h>

/* The transport object that RDS uses; Rust fills in its operations. */
extern struct rds_transport rdsrdma_transport;

struct net *rdsrdma_init_net(void);

/* Makes the transport's sysctls. Fails if this or another module has made them. */
int rdsrdma_register_sysctls(void);
void rdsrdma_unregister_sysctls(void);
int rdsrdma_flow_control(void);
/*
 * Maximum amount of received data that no program has read yet. The data of all
 * peers are added up. The unit is 4 KiB.
 */
unsigned long rdsrdma_max_recv_allocation(void);

/* The properties of an established connection that tools display. */
struct rdsrdma_details {
	u8 own_gid[16];
	u8 peer_gid[16];
	u32 send_wrs;
	u32 receives;
	u32 sges;
	/* Maximum number of regions, and maximum number of pages of each. */
	u32 regions;
	u32 pages;
};

/*
 * A connection of this module. It is in the list of all connections until it is
 * freed.
 */
struct rdsrdma_node {
	struct list_head item;
	struct rds_connection *conn;
	/*
	 * Whether a peer requested the connection before a program on this host
	 * used it.
	 */
	bool of_peer;
	struct rdsrdma_details details;
};

void rdsrdma_node_add(struct rdsrdma_node *node, struct rds_connection *conn);
void rdsrdma_node_del(struct rdsrdma_node *node);
struct rdsrdma_node *rdsrdma_first_node(void);
/* Returns the node after "node". "node" must stay in the list. */
struct rdsrdma_node *rdsrdma_next_node(struct rdsrdma_node *node);
void rdsrdma_node_of_peer(struct rdsrdma_node *node);
void rdsrdma_node_show(struct rdsrdma_node *node,
		       const struct rdsrdma_details *details);

/* Makes the tables of connections for tools such as rds-info. */
void rdsrdma_register_tables(void);
/*
 * Removes the tables. Other threads may still be reading them until
 * xprtrdma_wait_for_preempted returns.
 */
void rdsrdma_unregister_tables(void);

/* The events that are counted. Their names are those of the in-tree transport. */
enum rdsrdma_event {
	RDSRDMA_CONNECT_RACED,
	RDSRDMA_LISTEN_CLOSED_STALE,
	RDSRDMA_TX_RING_FULL,
	RDSRDMA_RX_ALLOC_LIMIT,
	RDSRDMA_ACK_SENT,
	RDSRDMA_RX_CREDIT_UPDATES,
	RDSRDMA_MR_ALLOC,
	RDSRDMA_MR_FREE,
	RDSRDMA_EVENTS,
};

void rdsrdma_count_event(enum rdsrdma_event event);

struct rdsrdma_count {
	bool known;
	unsigned long of_peer;
	unsigned long all;
};

/*
 * Writes three results to "to":
 * - all: the number of connections that any peer has requested
 * - of_peer: the number of connections that the peer with address "faddr" has
 *   requested
 * - known: whether a connection with these addresses and this type of service
 *   exists
 */
void rdsrdma_count_nodes(const struct in6_addr *laddr,
			 const struct in6_addr *faddr, u8 tos,
			 struct rdsrdma_count *to);

/* Makes RDS create no more connections of this transport. May sleep. */
void rdsrdma_begin_unloading(void);

bool rdsrdma_is_v4(const struct in6_addr *addr);
int rdsrdma_state(struct rds_connection *conn);
/* Returns true if the peer's address belongs to this host. */
bool rdsrdma_is_loopback(struct rds_connection *conn);
/*
 * Marks a connection as connecting. Returns false if the connection was not
 * down. Takes the lock that the connection manager's handlers hold. May sleep.
 */
bool rdsrdma_begin_connecting(struct rds_connection *conn);
void rdsrdma_wake_sender(struct rds_connection *conn);
/*
 * Returns true if RDS keeps no message of the connection: no message waits to
 * be sent, is being sent, or was not acknowledged by the peer. Takes the lock of
 * the message queues, and may be called with any lock of this module held.
 */
bool rdsrdma_is_idle(struct rds_connection *conn);
/* Sets a word of the peer's congestion map and returns its old value. */
u64 rdsrdma_set_map_word(struct rds_cong_map *map, unsigned int index, u64 word);

/* Returns the number of payload bytes before this scatterlist position. */
u32 rdsrdma_offset(const struct rds_message *rm, unsigned int sg,
		   unsigned int off);

/*
 * A position in the payload: an entry of its scatterlist, and a byte offset in
 * this entry.
 */
struct rdsrdma_place {
	size_t at;
	unsigned int entry;
};

/*
 * Copies up to len bytes from the position, and advances the position. Returns
 * the number of copied bytes.
 */
size_t rdsrdma_copy_payload(struct rds_message *rm, struct rdsrdma_place *place,
			    void *to, size_t len);
size_t rdsrdma_copy_from_op(struct rds_message *rm, size_t at, void *to,
			    size_t len);
size_t rdsrdma_copy_to_op(struct rds_message *rm, size_t at, const void *from,
			  size_t len);
/*
 * Reports this status to the message's socket now, if the program has asked for
 * reports. A program that has asked only for reports of failures gets no report
 * of a success.
 */
void rdsrdma_tell(struct rds_message *rm, int status);
/* Sets the status that the socket receives when the message is dropped. */
void rdsrdma_set_failure(struct rds_message *rm, int status);

/* Memory regions. */
/*
 * Connects the queue pair to itself. The queue pair must be new, and the id
 * must be bound to an address. May sleep.
 */
int rdsrdma_connect_to_itself(struct ib_qp *qp, struct rdma_cm_id *id);
/* The memory must be mapped for DMA in both directions. */
void rdsrdma_dma_sync_for_cpu(struct ib_device *dev, struct scatterlist *sg,
			      int nents);
void rdsrdma_dma_sync_for_device(struct ib_device *dev, struct scatterlist *sg,
				 int nents);
const struct in6_addr *rdsrdma_bound_address(const struct rds_sock *rs);

/*
 * The flags of a memory region. The parameter "key" of rdsrdma_mr_flags()
 * points to the key in the region.
 */
struct rdsrdma_mr_flags {
	bool use_once;
	bool invalidate;
};

void rdsrdma_mr_flags(const u32 *key, struct rdsrdma_mr_flags *to);
/* Returns true if the caller may sleep. */
bool rdsrdma_may_sleep(void);
void rdsrdma_unpin(struct page **pages, unsigned long count,
		   struct scatterlist *sg);
/* Takes a reference to each page. These references are never dropped. */
void rdsrdma_keep(struct page *const *pages, unsigned long count);

int rdsrdma_copy_to_iter(const void *from, size_t len, struct iov_iter *to);

#endif
