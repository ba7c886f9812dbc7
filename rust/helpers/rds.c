// SPDX-License-Identifier: GPL-2.0
/*
 * The C code that only rds_rdma_rs needs: the transport object, the sysctls,
 * and wrappers of static inlines and bit fields.  This file makes no policy
 * decisions.
 */
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/sysctl.h>
#include <linux/uio.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>

#include "rds.h"

static bool unloading;

static bool is_unloading(struct rds_connection *conn)
{
	return READ_ONCE(unloading);
}

static u8 tos_map(u8 tos)
{
	return tos;
}

static atomic64_t events[RDSRDMA_EVENTS];

void rdsrdma_count_event(enum rdsrdma_event event)
{
	atomic64_inc(&events[event]);
}

static unsigned int copy_events(struct rds_info_iterator *iter,
				unsigned int space)
{
	static const char *const names[RDSRDMA_EVENTS] = {
		[RDSRDMA_CONNECT_RACED] = "ib_connect_raced",
		[RDSRDMA_LISTEN_CLOSED_STALE] = "ib_listen_closed_stale",
		[RDSRDMA_TX_RING_FULL] = "ib_tx_ring_full",
		[RDSRDMA_RX_ALLOC_LIMIT] = "ib_rx_alloc_limit",
		[RDSRDMA_ACK_SENT] = "ib_ack_sent",
		[RDSRDMA_RX_CREDIT_UPDATES] = "ib_rx_credit_updates",
		[RDSRDMA_MR_ALLOC] = "ib_rdma_mr_1m_alloc",
		[RDSRDMA_MR_FREE] = "ib_rdma_mr_1m_free",
	};
	u64 values[RDSRDMA_EVENTS];
	unsigned int i;

	if (space >= RDSRDMA_EVENTS) {
		for (i = 0; i < RDSRDMA_EVENTS; i++)
			values[i] = atomic64_read(&events[i]);
		rds_stats_info_copy(iter, values, names, RDSRDMA_EVENTS);
	}
	return RDSRDMA_EVENTS;
}

struct rds_transport rdsrdma_transport = {
	.t_name = "infiniband",
	.t_owner = THIS_MODULE,
	.t_type = RDS_TRANS_IB,
	.t_unloading = is_unloading,
	.get_tos_map = tos_map,
	.stats_info_copy = copy_events,
};

void rdsrdma_begin_unloading(void)
{
	WRITE_ONCE(unloading, true);
	/*
	 * RDS tests the flag and makes a connection within one RCU section. So
	 * RDS makes no connection after this call.
	 */
	synchronize_rcu();
}

struct net *rdsrdma_init_net(void)
{
	return &init_net;
}

static int flow_control;
/* The unit of max_recv_allocation is 4 KiB. */
static unsigned long max_recv_allocation;

static const struct ctl_table sysctls[] = {
	{
		.procname = "flow_control",
		.data = &flow_control,
		.maxlen = sizeof(flow_control),
		.mode = 0644,
		.proc_handler = proc_dointvec_minmax,
		.extra1 = SYSCTL_ZERO,
		.extra2 = SYSCTL_ONE,
	},
	{
		.procname = "max_recv_allocation",
		.data = &max_recv_allocation,
		.maxlen = sizeof(max_recv_allocation),
		.mode = 0644,
		.proc_handler = proc_doulongvec_minmax,
	},
};

static struct ctl_table_header *sysctl_header;

int rdsrdma_register_sysctls(void)
{
	struct ctl_table_header *header;

	max_recv_allocation = totalram_pages() / 3 * (PAGE_SIZE / 4096);
	/*
	 * The cast is for kernels before 7.3, in which the parameter is not
	 * const.
	 */
	header = register_net_sysctl_sz(&init_net, "net/rds/ib",
					(void *)sysctls, ARRAY_SIZE(sysctls));
	if (!header)
		return -EBUSY;
	sysctl_header = header;
	return 0;
}

void rdsrdma_unregister_sysctls(void)
{
	unregister_net_sysctl_table(sysctl_header);
}

int rdsrdma_flow_control(void)
{
	return READ_ONCE(flow_control);
}

unsigned long rdsrdma_max_recv_allocation(void)
{
	return READ_ONCE(max_recv_allocation);
}

static LIST_HEAD(nodes);
/*
 * No interrupt handler takes this lock, so the holder of the lock need not
 * disable interrupts. Interrupts may be disabled already when the lock is
 * taken: RDS has disabled them when it frees a connection that was created
 * twice.
 */
static DEFINE_SPINLOCK(nodes_lock);

void rdsrdma_node_add(struct rdsrdma_node *node, struct rds_connection *conn)
{
	node->conn = conn;
	spin_lock(&nodes_lock);
	list_add_tail(&node->item, &nodes);
	spin_unlock(&nodes_lock);
}

void rdsrdma_node_del(struct rdsrdma_node *node)
{
	spin_lock(&nodes_lock);
	list_del(&node->item);
	spin_unlock(&nodes_lock);
}

struct rdsrdma_node *rdsrdma_first_node(void)
{
	struct rdsrdma_node *first;

	spin_lock(&nodes_lock);
	first = list_first_entry_or_null(&nodes, struct rdsrdma_node, item);
	spin_unlock(&nodes_lock);
	return first;
}

struct rdsrdma_node *rdsrdma_next_node(struct rdsrdma_node *node)
{
	struct rdsrdma_node *next = NULL;

	spin_lock(&nodes_lock);
	if (!list_is_last(&node->item, &nodes))
		next = list_next_entry(node, item);
	spin_unlock(&nodes_lock);
	return next;
}

void rdsrdma_node_of_peer(struct rdsrdma_node *node)
{
	spin_lock(&nodes_lock);
	node->of_peer = true;
	spin_unlock(&nodes_lock);
}

void rdsrdma_node_show(struct rdsrdma_node *node,
		       const struct rdsrdma_details *details)
{
	spin_lock(&nodes_lock);
	node->details = *details;
	spin_unlock(&nodes_lock);
}

static void make_row(const struct rdsrdma_node *node,
		     struct rds6_info_rdma_connection *row)
{
	const struct rdsrdma_details *details = &node->details;

	/*
	 * Programs can read the padding between the fields, so the padding is
	 * cleared, too.
	 */
	memset(row, 0, sizeof(*row));
	row->src_addr = node->conn->c_laddr;
	row->dst_addr = node->conn->c_faddr;
	row->tos = node->conn->c_tos;
	if (rds_conn_state(node->conn) != RDS_CONN_UP)
		return;
	memcpy(row->src_gid, details->own_gid, sizeof(row->src_gid));
	memcpy(row->dst_gid, details->peer_gid, sizeof(row->dst_gid));
	row->max_send_wr = details->send_wrs;
	row->max_recv_wr = details->receives;
	row->max_send_sge = details->sges;
	row->rdma_mr_max = details->regions;
	row->rdma_mr_size = details->pages;
}

static void make_v4_row(const struct rdsrdma_node *node,
			struct rds_info_rdma_connection *row)
{
	struct rds6_info_rdma_connection all;

	make_row(node, &all);
	memset(row, 0, sizeof(*row));
	row->src_addr = all.src_addr.s6_addr32[3];
	row->dst_addr = all.dst_addr.s6_addr32[3];
	row->max_send_wr = all.max_send_wr;
	row->max_recv_wr = all.max_recv_wr;
	row->max_send_sge = all.max_send_sge;
	row->rdma_mr_max = all.rdma_mr_max;
	row->rdma_mr_size = all.rdma_mr_size;
	row->tos = all.tos;
	memcpy(row->src_gid, all.src_gid, sizeof(row->src_gid));
	memcpy(row->dst_gid, all.dst_gid, sizeof(row->dst_gid));
}

/*
 * Copies a row of information about each connection. If @v4 is true, copies
 * only the rows of IPv4 connections.
 */
static void copy_rows(struct socket *sock, unsigned int len,
		      struct rds_info_iterator *iter,
		      struct rds_info_lengths *lens, bool v4)
{
	union {
		struct rds_info_rdma_connection v4;
		struct rds6_info_rdma_connection all;
	} row;
	struct rdsrdma_node *node;

	lens->nr = 0;
	lens->each = v4 ? sizeof(row.v4) : sizeof(row.all);
	/* All connections are in the initial network namespace. */
	if (!net_eq(sock_net(sock->sk), &init_net))
		return;
	spin_lock(&nodes_lock);
	/* Interrupts must be enabled here, because the list can be long. */
	lockdep_assert_irqs_enabled();
	list_for_each_entry(node, &nodes, item) {
		if (v4 && node->conn->c_isv6)
			continue;
		/*
		 * A connection is counted even if there is no space for its
		 * row, so that the caller learns the size of the whole list.
		 */
		lens->nr++;
		if (len < lens->each)
			continue;
		if (v4)
			make_v4_row(node, &row.v4);
		else
			make_row(node, &row.all);
		rds_info_copy(iter, &row, lens->each);
		len -= lens->each;
	}
	spin_unlock(&nodes_lock);
}

static void copy_v4(struct socket *sock, unsigned int len,
		    struct rds_info_iterator *iter,
		    struct rds_info_lengths *lens)
{
	copy_rows(sock, len, iter, lens, true);
}

static void copy_all(struct socket *sock, unsigned int len,
		     struct rds_info_iterator *iter,
		     struct rds_info_lengths *lens)
{
	copy_rows(sock, len, iter, lens, false);
}

void rdsrdma_register_tables(void)
{
	rds_info_register_func(RDS_INFO_IB_CONNECTIONS, copy_v4);
	rds_info_register_func(RDS6_INFO_IB_CONNECTIONS, copy_all);
}

void rdsrdma_unregister_tables(void)
{
	rds_info_deregister_func(RDS_INFO_IB_CONNECTIONS, copy_v4);
	rds_info_deregister_func(RDS6_INFO_IB_CONNECTIONS, copy_all);
}

void rdsrdma_count_nodes(const struct in6_addr *laddr,
			 const struct in6_addr *faddr, u8 tos,
			 struct rdsrdma_count *to)
{
	struct rdsrdma_node *node;

	*to = (struct rdsrdma_count) {};
	spin_lock(&nodes_lock);
	list_for_each_entry(node, &nodes, item) {
		to->all += node->of_peer;
		if (!ipv6_addr_equal(&node->conn->c_faddr, faddr))
			continue;
		to->of_peer += node->of_peer;
		if (ipv6_addr_equal(&node->conn->c_laddr, laddr) &&
		    node->conn->c_tos == tos)
			to->known = true;
	}
	spin_unlock(&nodes_lock);
}

bool rdsrdma_is_v4(const struct in6_addr *addr)
{
	return ipv6_addr_v4mapped(addr);
}

int rdsrdma_state(struct rds_connection *conn)
{
	return rds_conn_path_state(&conn->c_path[0]);
}

bool rdsrdma_is_loopback(struct rds_connection *conn)
{
	/*
	 * RDS sets c_loopback only when it creates the connection, and only if
	 * a device has the peer's address at that time.
	 */
	return conn->c_loopback ||
	       ipv6_addr_equal(&conn->c_laddr, &conn->c_faddr);
}

bool rdsrdma_begin_connecting(struct rds_connection *conn)
{
	struct rds_conn_path *cp = &conn->c_path[0];
	bool begun;

	mutex_lock(&cp->cp_cm_lock);
	begun = rds_conn_path_transition(cp, RDS_CONN_DOWN,
					 RDS_CONN_CONNECTING);
	mutex_unlock(&cp->cp_cm_lock);
	return begun;
}

void rdsrdma_wake_sender(struct rds_connection *conn)
{
	struct rds_conn_path *cp = &conn->c_path[0];

	rcu_read_lock();
	if (!rds_destroy_pending(conn))
		queue_delayed_work(cp->cp_wq, &cp->cp_send_w, 0);
	rcu_read_unlock();
}

bool rdsrdma_is_idle(struct rds_connection *conn)
{
	struct rds_conn_path *cp = &conn->c_path[0];
	unsigned long flags;
	bool idle;

	spin_lock_irqsave(&cp->cp_lock, flags);
	/*
	 * The lock does not protect cp_xmit_rm. But RDS moves a message from
	 * cp_send_queue to cp_retrans before it sets cp_xmit_rm. So a message
	 * is missed only if it is cancelled in between. Only messages of
	 * sockets can be cancelled, so no answer to a ping is missed.
	 */
	idle = list_empty(&cp->cp_send_queue) && list_empty(&cp->cp_retrans) &&
	       !READ_ONCE(cp->cp_xmit_rm);
	spin_unlock_irqrestore(&cp->cp_lock, flags);
	return idle;
}

u64 rdsrdma_set_map_word(struct rds_cong_map *map, unsigned int index, u64 word)
{
	unsigned int page = index / (PAGE_SIZE / sizeof(u64));
	unsigned int at = index % (PAGE_SIZE / sizeof(u64));

	return xchg((u64 *)map->m_page_addrs[page] + at, word);
}

u32 rdsrdma_offset(const struct rds_message *rm, unsigned int sg,
		   unsigned int off)
{
	unsigned int i;

	for (i = 0; i < sg; i++)
		off += rm->data.op_sg[i].length;
	return off;
}

static noinline size_t copy_entries(struct rds_message *rm,
				    struct rdsrdma_place *place, void *to,
				    size_t len)
{
	size_t done = 0;

	while (done < len && place->entry < rm->data.op_nents) {
		struct scatterlist *sg = &rm->data.op_sg[place->entry];
		size_t part;

		if (place->at >= sg->length) {
			place->at -= sg->length;
			place->entry++;
			continue;
		}
		part = min(len - done, sg->length - place->at);
		memcpy_from_page(to + done, sg_page(sg), sg->offset + place->at,
				 part);
		done += part;
		place->at += part;
	}
	return done;
}

/* RDS allocates single pages, so each entry lies in one page. */
size_t rdsrdma_copy_payload(struct rds_message *rm, struct rdsrdma_place *place,
			    void *to, size_t len)
{
	struct scatterlist *sg = &rm->data.op_sg[place->entry];

	/* Usually all bytes are in one entry. */
	if (place->entry < rm->data.op_nents && place->at + len <= sg->length) {
		memcpy_from_page(to, sg_page(sg), sg->offset + place->at, len);
		place->at += len;
		return len;
	}
	return copy_entries(rm, place, to, len);
}

size_t rdsrdma_copy_from_op(struct rds_message *rm, size_t at, void *to,
			    size_t len)
{
	return sg_pcopy_to_buffer(rm->rdma.op_sg, rm->rdma.op_nents, to, len,
				  at);
}

size_t rdsrdma_copy_to_op(struct rds_message *rm, size_t at, const void *from,
			  size_t len)
{
	return sg_pcopy_from_buffer(rm->rdma.op_sg, rm->rdma.op_nents, from,
				    len, at);
}

void rdsrdma_tell(struct rds_message *rm, int status)
{
	unsigned long flags;

	/*
	 * RDS reads op_notify with this lock held. Without op_notify, RDS would
	 * not report the failure to a program that asked only for reports of
	 * failures.
	 */
	spin_lock_irqsave(&rm->m_rs_lock, flags);
	if (status != RDS_RDMA_SUCCESS && rm->rdma.op_recverr)
		rm->rdma.op_notify = 1;
	spin_unlock_irqrestore(&rm->m_rs_lock, flags);
	rds_rdma_send_complete(rm, status);
}

void rdsrdma_set_failure(struct rds_message *rm, int status)
{
	struct rds_notifier *notifier;
	unsigned long flags;

	spin_lock_irqsave(&rm->m_rs_lock, flags);
	notifier = rm->rdma.op_notifier;
	if (notifier && !notifier->n_status)
		notifier->n_status = status;
	spin_unlock_irqrestore(&rm->m_rs_lock, flags);
}

int rdsrdma_connect_to_itself(struct ib_qp *qp, struct rdma_cm_id *id)
{
	const struct ib_gid_attr *gid = id->route.addr.dev_addr.sgid_attr;
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = id->port_num,
	};
	struct ib_port_attr port;
	union ib_gid dgid;
	int err;

	if (!gid)
		return -ENODEV;
	dgid = gid->gid;
	err = ib_query_port(qp->device, id->port_num, &port);
	if (err)
		return err;
	err = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX |
				      IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (err)
		return err;

	attr = (struct ib_qp_attr) {
		.qp_state = IB_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = qp->qp_num,
	};
	attr.ah_attr.type = rdma_ah_find_type(qp->device, id->port_num);
	rdma_ah_set_port_num(&attr.ah_attr, id->port_num);
	rdma_ah_set_dlid(&attr.ah_attr, port.lid);
	rdma_ah_set_grh(&attr.ah_attr, &dgid, 0, gid->index, 64, 0);
	err = ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_AV |
				      IB_QP_PATH_MTU | IB_QP_DEST_QPN |
				      IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC |
				      IB_QP_MIN_RNR_TIMER);
	if (err)
		return err;

	attr = (struct ib_qp_attr) {
		.qp_state = IB_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	return ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_TIMEOUT |
				       IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
				       IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC);
}

void rdsrdma_dma_sync_for_cpu(struct ib_device *dev, struct scatterlist *sg,
			      int nents)
{
	if (!ib_uses_virt_dma(dev))
		dma_sync_sg_for_cpu(dev->dma_device, sg, nents,
				    DMA_BIDIRECTIONAL);
}

void rdsrdma_dma_sync_for_device(struct ib_device *dev, struct scatterlist *sg,
				 int nents)
{
	if (!ib_uses_virt_dma(dev))
		dma_sync_sg_for_device(dev->dma_device, sg, nents,
				       DMA_BIDIRECTIONAL);
}

const struct in6_addr *rdsrdma_bound_address(const struct rds_sock *rs)
{
	return &rs->rs_bound_addr;
}

void rdsrdma_mr_flags(const u32 *key, struct rdsrdma_mr_flags *to)
{
	const struct rds_mr *mr = container_of(key, struct rds_mr, r_key);

	to->use_once = mr->r_use_once;
	to->invalidate = mr->r_invalidate;
}

bool rdsrdma_may_sleep(void)
{
	/*
	 * in_interrupt() is true also while bottom halves are disabled. With
	 * PREEMPT_RT, a spinning lock does not disable interrupts, but the
	 * holder of such a lock is in an RCU section.
	 */
	return !in_interrupt() && !irqs_disabled() && !rcu_preempt_depth();
}

void rdsrdma_unpin(struct page **pages, unsigned long count,
		   struct scatterlist *sg)
{
	unpin_user_pages_dirty_lock(pages, count, true);
	kfree(sg);
}

void rdsrdma_keep(struct page *const *pages, unsigned long count)
{
	unsigned long i;

	for (i = 0; i < count; i++)
		get_page(pages[i]);
}

int rdsrdma_copy_to_iter(const void *from, size_t len, struct iov_iter *to)
{
	len = min(len, iov_iter_count(to));
	return copy_to_iter(from, len, to) == len ? len : -EFAULT;
}
