// SPDX-License-Identifier: GPL-2.0
/*
 * Makes RPCs through the normal interface of the RPC client, for the KUnit
 * suites of the transport class. There is no server: the test driver of the
 * suites answers the calls.
 */
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/gfp.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/kthread.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/xprt.h>
#include <linux/timer.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>

#include "../helpers/helpers.h"
#include "fake_rpc.h"

#define FAKE_PROGRAM 0x20000f0f

static void encode_null(struct rpc_rqst *rqst, struct xdr_stream *xdr,
			const void *arg)
{
}

static atomic_t fake_released;

int fake_releases(void)
{
	return atomic_xchg(&fake_released, 0);
}

static void release_copies(struct rpc_rqst *rqst)
{
	while (rqst->rq_enc_pages_num)
		__free_page(rqst->rq_enc_pages[--rqst->rq_enc_pages_num]);
	kfree(rqst->rq_enc_pages);
	rqst->rq_release_snd_buf = NULL;
	atomic_inc(&fake_released);
}

/*
 * Does what auth_gss does for privacy, in the same order: it frees the pages of
 * the previous encoding first, then allocates new pages.
 */
static void send_copies(struct rpc_rqst *rqst)
{
	struct xdr_buf *buf = &rqst->rq_snd_buf;
	unsigned int i, count = PAGE_ALIGN(buf->page_base + buf->page_len) /
				PAGE_SIZE;
	struct page **copies;

	if (rqst->rq_release_snd_buf)
		rqst->rq_release_snd_buf(rqst);
	copies = kcalloc(count, sizeof(*copies), GFP_KERNEL | __GFP_NOFAIL);
	for (i = 0; i < count; i++) {
		copies[i] = alloc_page(GFP_KERNEL | __GFP_NOFAIL);
		copy_page(page_address(copies[i]), page_address(buf->pages[i]));
	}
	rqst->rq_enc_pages = copies;
	rqst->rq_enc_pages_num = count;
	rqst->rq_release_snd_buf = release_copies;
	buf->pages = copies;
}

static void encode_put(struct rpc_rqst *rqst, struct xdr_stream *xdr,
		       const void *arg)
{
	const struct fake_io *io = arg;
	__be32 *p = xdr_reserve_space(xdr, 4);

	*p = cpu_to_be32(io->len);
	xdr_write_pages(xdr, io->pages, io->base, io->len);
	xdr->buf->flags |= XDRBUF_WRITE;
	if (io->wrapped)
		send_copies(rqst);
}

static void encode_get(struct rpc_rqst *rqst, struct xdr_stream *xdr,
		       const void *arg)
{
	const struct fake_io *io = arg;

	/* The length field of the opaque is in the head. */
	rpc_prepare_reply_pages(rqst, io->pages, io->base, io->len,
				1 + io->longer);
	if (io->sparse)
		rqst->rq_rcv_buf.flags |= XDRBUF_SPARSE_PAGES;
	if (io->read_data)
		rqst->rq_rcv_buf.flags |= XDRBUF_READ;
}

static int decode_null(struct rpc_rqst *rqst, struct xdr_stream *xdr, void *res)
{
	return 0;
}

static int decode_get(struct rpc_rqst *rqst, struct xdr_stream *xdr, void *res)
{
	struct fake_io *io = res;
	__be32 *p = xdr_inline_decode(xdr, 4);

	if (!p)
		return -EIO;
	io->got = xdr_read_pages(xdr, be32_to_cpup(p));
	return 0;
}

static const struct rpc_procinfo fake_procs[FAKE_PROCS] = {
	[FAKE_PROC_NULL] = {
		.p_proc = FAKE_PROC_NULL,
		.p_encode = encode_null,
		.p_decode = decode_null,
		.p_name = "NULL",
	},
	[FAKE_PROC_PUT] = {
		.p_proc = FAKE_PROC_PUT,
		.p_encode = encode_put,
		.p_decode = decode_null,
		.p_arglen = 1,
		.p_statidx = FAKE_PROC_PUT,
		.p_name = "PUT",
	},
	[FAKE_PROC_GET] = {
		.p_proc = FAKE_PROC_GET,
		.p_encode = encode_get,
		.p_decode = decode_get,
		.p_replen = 1 + 1,
		.p_statidx = FAKE_PROC_GET,
		.p_name = "GET",
	},
};

static unsigned int fake_counts[FAKE_PROCS];

static const struct rpc_version fake_version = {
	.number = 1,
	.nrprocs = FAKE_PROCS,
	.procs = fake_procs,
	.counts = fake_counts,
};

static const struct rpc_version *fake_versions[] = {
	[1] = &fake_version,
};

static struct rpc_stat fake_stats;

static const struct rpc_program fake_program = {
	.name = "fake",
	.number = FAKE_PROGRAM,
	.nrvers = ARRAY_SIZE(fake_versions),
	.version = fake_versions,
	.stats = &fake_stats,
};

static struct rpc_xprt *setup(struct sockaddr *address, size_t len)
{
	struct xprt_create args = {
		.ident = XPRT_TRANSPORT_RDMA,
		.net = &init_net,
		.dstaddr = address,
		.addrlen = len,
	};

	return xprtrdma_class.setup(&args);
}

struct rpc_xprt *fake_setup(bool ipv6, unsigned short port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(0xc0000207),
	};
	struct sockaddr_in6 sin6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(port),
		.sin6_addr.s6_addr = { 0xfe, 0x80, [15] = 7 },
		.sin6_scope_id = 3,
	};

	return ipv6 ? setup((struct sockaddr *)&sin6, sizeof(sin6)) :
		      setup((struct sockaddr *)&sin, sizeof(sin));
}

struct rpc_xprt *fake_setup_family(unsigned short family)
{
	struct sockaddr_storage address = { .ss_family = family };

	return setup((struct sockaddr *)&address, sizeof(address));
}

void fake_destroy(struct rpc_xprt *xprt)
{
	rpc_destroy_wait_queue(&xprt->binding);
	rpc_destroy_wait_queue(&xprt->pending);
	rpc_destroy_wait_queue(&xprt->sending);
	rpc_destroy_wait_queue(&xprt->backlog);
	wait_on_bit_lock(&xprt->state, XPRT_LOCKED, TASK_UNINTERRUPTIBLE);
	xprt->ops->destroy(xprt);
}

const char *fake_xprt_name(struct rpc_xprt *xprt,
			   enum rpc_display_format_t which)
{
	return xprt->address_strings[which];
}

void fake_set_port(struct rpc_xprt *xprt, unsigned short port)
{
	xprt->ops->set_port(xprt, port);
}

int fake_source(struct rpc_xprt *xprt, char *buf, size_t len)
{
	return xprt->ops->get_srcaddr(xprt, buf, len);
}

int fake_start_callbacks(struct rpc_xprt *xprt)
{
	return xprt->ops->bc_setup(xprt, 1);
}

u32 fake_callback_slots(struct rpc_xprt *xprt)
{
	return xprt->ops->bc_num_slots(xprt);
}

void fake_leave(struct rpc_xprt *xprt)
{
	refcount_set(&xprt->kref.refcount, 0);
}

struct delivery {
	struct work_struct work;
	struct completion done;
	struct rpc_xprt *xprt;
	void (*deliver)(struct rpc_xprt *xprt);
};

static void deliver_work(struct work_struct *work)
{
	struct delivery *this = container_of(work, struct delivery, work);

	this->deliver(this->xprt);
	complete(&this->done);
}

static void no_timer(struct timer_list *timer)
{
}

static const struct rpc_xprt_ops *real_ops;

/* Called when the delivery has found no service for the callback. */
static void leave_and_free(struct rpc_rqst *rqst)
{
	rqst->rq_xprt->ops = real_ops;
	xprt_put(rqst->rq_xprt);
	real_ops->bc_free_rqst(rqst);
}

int fake_leave_amid(struct rpc_xprt *xprt,
		    void (*deliver)(struct rpc_xprt *xprt))
{
	struct delivery this = { .xprt = xprt, .deliver = deliver };
	static struct rpc_xprt_ops ops;
	bool soon;

	/* Initialises the fields that xprt_create_transport() initialises. */
	timer_setup(&xprt->timer, no_timer, 0);
	real_ops = xprt->ops;
	ops = *real_ops;
	ops.bc_free_rqst = leave_and_free;
	xprt->ops = &ops;
	set_bit(XPRT_LOCKED, &xprt->state);
	INIT_WORK_ONSTACK(&this.work, deliver_work);
	init_completion(&this.done);
	queue_work(system_dfl_wq, &this.work);
	soon = wait_for_completion_timeout(&this.done, 20 * HZ);
	clear_and_wake_up_bit(XPRT_LOCKED, &xprt->state);
	flush_work(&this.work);
	destroy_work_on_stack(&this.work);
	return soon ? 0 : -ETIMEDOUT;
}

struct rpc_clnt *fake_clnt(bool soft, bool nfs4)
{
	static const struct rpc_timeout quick = {
		.to_initval = HZ / 2,
		.to_maxval = HZ / 2,
	};
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(20049),
		.sin_addr.s_addr = htonl(0xc0000207),
	};
	struct rpc_create_args args = {
		.net = &init_net,
		.protocol = XPRT_TRANSPORT_RDMA,
		.address = (struct sockaddr *)&sin,
		.addrsize = sizeof(sin),
		.servername = "fake",
		.program = &fake_program,
		.version = 1,
		.authflavor = RPC_AUTH_NULL,
		.flags = RPC_CLNT_CREATE_NOPING,
		.timeout = soft ? &quick : NULL,
		.cred = current_cred(),
	};

	args.flags |= soft ? 0 : RPC_CLNT_CREATE_HARDRTRY;
	if (nfs4)
		args.flags |= RPC_CLNT_CREATE_DISCRTRY |
			      RPC_CLNT_CREATE_NO_RETRANS_TIMEOUT;
	return rpc_create(&args);
}

struct rpc_xprt *fake_clnt_xprt(struct rpc_clnt *clnt)
{
	return rcu_dereference_protected(clnt->cl_xprt, true);
}

void fake_clnt_end(struct rpc_clnt *clnt)
{
	rpc_shutdown_client(clnt);
}

struct rpc_task *fake_call(struct rpc_clnt *clnt, enum fake_proc proc,
			   struct fake_io *io)
{
	static const struct rpc_call_ops nothing;
	struct rpc_message message = {
		.rpc_proc = &fake_procs[proc],
		.rpc_argp = io,
		.rpc_resp = io,
	};
	struct rpc_task_setup args = {
		.rpc_client = clnt,
		.rpc_message = &message,
		.callback_ops = &nothing,
		.flags = RPC_TASK_ASYNC,
	};

	return rpc_run_task(&args);
}

static int call_alone(void *clnt)
{
	struct rpc_message message = {
		.rpc_proc = &fake_procs[FAKE_PROC_NULL],
	};

	return rpc_call_sync(clnt, &message, 0);
}

struct task_struct *fake_process(struct rpc_clnt *clnt)
{
	struct task_struct *process = kthread_create(call_alone, clnt, "fake");

	if (!IS_ERR(process)) {
		get_task_struct(process);
		wake_up_process(process);
	}
	return process;
}

int fake_process_end(struct task_struct *process)
{
	return kthread_stop_put(process);
}

bool fake_is_over(struct rpc_task *task)
{
	return !RPC_IS_ACTIVATED(task);
}

int fake_wait(struct rpc_task *task)
{
	int status;

	/* Waits like rpc_wait_for_completion_task(), but ignores signals. */
	wait_on_bit(&task->tk_runstate, RPC_TASK_ACTIVE, TASK_UNINTERRUPTIBLE);
	status = task->tk_status;
	rpc_put_task(task);
	return status;
}

void fake_kill(struct rpc_clnt *clnt)
{
	rpc_killall_tasks(clnt);
}

struct page *fake_page(void)
{
	return alloc_page(GFP_KERNEL | __GFP_ZERO);
}

void fake_page_free(struct page *page)
{
	__free_page(page);
}

void *fake_page_address(struct page *page)
{
	return page_address(page);
}

bool fake_is_zero(const struct xdr_buf *buf)
{
	unsigned int i;

	if (memchr_inv(buf->head[0].iov_base, 0, buf->head[0].iov_len) ||
	    memchr_inv(buf->tail[0].iov_base, 0, buf->tail[0].iov_len))
		return false;
	/* The check is correct only for data at the start of page 0. */
	for (i = 0; i < buf->page_len / PAGE_SIZE; i++)
		if (memchr_inv(page_address(buf->pages[i]), 0, PAGE_SIZE))
			return false;
	return true;
}
