/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side that the module of RDS alone has; see helpers.h.
 */
#ifndef _XPRTRDMA_RS_RDS_H
#define _XPRTRDMA_RS_RDS_H

#include <linux/list.h>
#include <linux/types.h>
#include <rds.h>

/* The object that RDS knows; Rust fills in the operations. */
extern struct rds_transport rdsrdma_transport;

struct net *rdsrdma_init_net(void);

/* Makes the sysctls of the transport; fails if another module has them. */
int rdsrdma_register_sysctls(void);
void rdsrdma_unregister_sysctls(void);
int rdsrdma_flow_control(void);
/* How much of all peers may wait for programs, in units of 4 KiB. */
unsigned long rdsrdma_max_recv_allocation(void);

/* The connections of this module, each in the list until it is freed. */
struct rdsrdma_node {
	struct list_head item;
	struct rds_connection *conn;
};

void rdsrdma_node_add(struct rdsrdma_node *node, struct rds_connection *conn);
void rdsrdma_node_del(struct rdsrdma_node *node);
struct rdsrdma_node *rdsrdma_first_node(void);

struct rdsrdma_count {
	bool known;
	unsigned long of_peer;
	unsigned long all;
};

/* Counts connections: all, with this peer, and whether this one is there. */
void rdsrdma_count_nodes(const struct in6_addr *laddr,
			 const struct in6_addr *faddr, u8 tos,
			 struct rdsrdma_count *to);

/* From now on RDS makes no connection of this transport. Sleeps. */
void rdsrdma_begin_unloading(void);

bool rdsrdma_is_v4(const struct in6_addr *addr);
int rdsrdma_state(struct rds_connection *conn);
/* Under the lock of the connection manager's handlers. Sleeps. */
bool rdsrdma_begin_connecting(struct rds_connection *conn);
void rdsrdma_wake_sender(struct rds_connection *conn);
/* Sets a word of the congestion map of the peer; returns what it was. */
u64 rdsrdma_set_map_word(struct rds_cong_map *map, unsigned int index, u64 word);

struct rds_message *rdsrdma_message_of(struct rm_rdma_op *op);

/* What a message asks for. */
struct rdsrdma_facts {
	u64 cookie;
	u64 remote_addr;
	u32 remote_key;
	u32 op_bytes;
	u32 op_pieces;
	bool ack_required;
	bool retransmitted;
	bool has_op;
	bool op_writes;
	bool op_fence;
	bool op_notify;
	bool op_recverr;
	bool op_silent;
};

void rdsrdma_facts(const struct rds_message *rm, struct rdsrdma_facts *to);
/* Bytes of the payload in front of this place. */
u32 rdsrdma_offset(const struct rds_message *rm, unsigned int sg,
		   unsigned int off);
size_t rdsrdma_copy_payload(struct rds_message *rm, size_t at, void *to,
			    size_t len);
size_t rdsrdma_copy_from_op(struct rds_message *rm, size_t at, void *to,
			    size_t len);
size_t rdsrdma_copy_to_op(struct rds_message *rm, size_t at, const void *from,
			  size_t len);
/* The table of the memory of its operation, with op_pieces entries. */
struct scatterlist *rdsrdma_op_table(struct rds_message *rm);
/* The status that the socket is told when the message is dropped. */
void rdsrdma_set_failure(struct rds_message *rm, int status);

/* regions */
/* Sleeps; the queue pair is new, and the id is bound. */
int rdsrdma_connect_to_itself(struct ib_qp *qp, struct rdma_cm_id *id);
void rdsrdma_sg_set_page(struct scatterlist *sg, struct page *page,
			 unsigned int len, unsigned int offset);
struct page *rdsrdma_sg_page(struct scatterlist *sg);
u64 rdsrdma_sg_dma_address(const struct scatterlist *sg);
/* For both directions. */
int rdsrdma_dma_map(struct ib_device *dev, struct scatterlist *sg, int nents);
void rdsrdma_dma_unmap(struct ib_device *dev, struct scatterlist *sg,
		       int nents);
void rdsrdma_dma_sync_for_cpu(struct ib_device *dev, struct scatterlist *sg,
			      int nents);
void rdsrdma_dma_sync_for_device(struct ib_device *dev, struct scatterlist *sg,
				 int nents);
const struct in6_addr *rdsrdma_bound_address(const struct rds_sock *rs);

/* The flags of a region, whose key is to be stored at this place. */
struct rdsrdma_mr_flags {
	bool use_once;
	bool invalidate;
};

void rdsrdma_mr_flags(const u32 *key, struct rdsrdma_mr_flags *to);
void rdsrdma_unpin(struct page **pages, unsigned long count,
		   struct scatterlist *sg);
/* Takes a reference to each page, for ever. */
void rdsrdma_keep(struct page *const *pages, unsigned long count);

int rdsrdma_copy_to_iter(const void *from, size_t len, struct iov_iter *to);

#endif
