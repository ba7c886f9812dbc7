/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A user of the transport class for the KUnit suites: an RPC program with three
 * procedures. Only in xprtrdma_rs_kunit.ko.
 */
#ifndef _XPRTRDMA_RS_FAKE_RPC_H
#define _XPRTRDMA_RS_FAKE_RPC_H

#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/xprt.h>

enum fake_proc {
	/* A procedure without arguments and without a result. */
	FAKE_PROC_NULL,
	/* Sends an opaque (XDR) whose data is in the pages of fake_io. */
	FAKE_PROC_PUT,
	/* Stores the data of a received opaque (XDR) in the pages of fake_io. */
	FAKE_PROC_GET,
	FAKE_PROCS,
};

/* The arguments and the result of a call. */
struct fake_io {
	struct page **pages;
	unsigned int base;
	unsigned int len;
	/*
	 * Number of words by which the expected verifier has become longer
	 * since the memory for the reply was allocated. Replies to other calls
	 * make the expected verifier longer.
	 */
	unsigned int longer;
	/* Number of received bytes. */
	unsigned int got;
	/* Whether XDRBUF_SPARSE_PAGES and XDRBUF_READ are set for the pages. */
	bool sparse;
	bool read_data;
	/*
	 * Whether copies of the pages are sent. A security flavour that
	 * encrypts sends such copies.
	 */
	bool wrapped;
};

/* These functions create and destroy a transport as the RPC client does. */
struct rpc_xprt *fake_setup(bool ipv6, unsigned short port);
struct rpc_xprt *fake_setup_family(unsigned short family);
void fake_destroy(struct rpc_xprt *xprt);
/* Returns one of the transport's address strings. */
const char *fake_xprt_name(struct rpc_xprt *xprt,
			   enum rpc_display_format_t which);
void fake_set_port(struct rpc_xprt *xprt, unsigned short port);
int fake_source(struct rpc_xprt *xprt, char *buf, size_t len);
int fake_start_callbacks(struct rpc_xprt *xprt);
u32 fake_callback_slots(struct rpc_xprt *xprt);
/* Drops the only reference. The caller must then call fake_destroy(). */
void fake_leave(struct rpc_xprt *xprt);
/*
 * Drops the only reference while another thread delivers a callback and a third
 * thread holds the send lock; then destroys the transport.
 */
int fake_leave_amid(struct rpc_xprt *xprt,
		    void (*deliver)(struct rpc_xprt *xprt));

/* If nfs4 is true, the client sends a call again only on a new connection. */
struct rpc_clnt *fake_clnt(bool soft, bool nfs4);
struct rpc_xprt *fake_clnt_xprt(struct rpc_clnt *clnt);
void fake_clnt_end(struct rpc_clnt *clnt);

/* Starts a call. The caller must wait for its result exactly once. */
struct rpc_task *fake_call(struct rpc_clnt *clnt, enum fake_proc proc,
			   struct fake_io *io);
/*
 * Starts a thread that makes a synchronous NULL call, like a user process.
 * fake_process_end() waits for the thread, and returns the result of the call.
 */
struct task_struct *fake_process(struct rpc_clnt *clnt);
int fake_process_end(struct task_struct *process);
/*
 * Returns how many times copies of pages were freed since this function was
 * last called.
 */
int fake_releases(void);
bool fake_is_over(struct rpc_task *task);
int fake_wait(struct rpc_task *task);
/*
 * Kills all calls that have a slot. The result of each call must still be
 * waited for.
 */
void fake_kill(struct rpc_clnt *clnt);

struct page *fake_page(void);
void fake_page_free(struct page *page);
void *fake_page_address(struct page *page);
/* Returns whether the whole memory for a message is zero. */
bool fake_is_zero(const struct xdr_buf *buf);

#endif
