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
	/* Nothing in either direction. */
	FAKE_PROC_NULL,
	/* An opaque of data, from the pages. */
	FAKE_PROC_PUT,
	/* An opaque of data, into the pages. */
	FAKE_PROC_GET,
	FAKE_PROCS,
};

/* Arguments and result. */
struct fake_io {
	struct page **pages;
	unsigned int base;
	unsigned int len;
	/*
	 * Words by which other replies have lengthened the verifier that is
	 * expected, since the reply's memory was allocated.
	 */
	unsigned int longer;
	/* Bytes that came, and how the pages are to be made. */
	unsigned int got;
	bool sparse;
	bool read_data;
	/* Whether copies of the pages are sent, as with a security flavour that
	 * encrypts.
	 */
	bool wrapped;
};

/* Makes a transport as the RPC client does, and ends it as it does. */
struct rpc_xprt *fake_setup(bool ipv6, unsigned short port);
struct rpc_xprt *fake_setup_family(unsigned short family);
void fake_destroy(struct rpc_xprt *xprt);
/* One of its names. */
const char *fake_xprt_name(struct rpc_xprt *xprt,
			   enum rpc_display_format_t which);
void fake_set_port(struct rpc_xprt *xprt, unsigned short port);
int fake_source(struct rpc_xprt *xprt, char *buf, size_t len);
int fake_start_callbacks(struct rpc_xprt *xprt);
u32 fake_callback_slots(struct rpc_xprt *xprt);
/* Drops the only reference; the transport is ended with fake_destroy(). */
void fake_leave(struct rpc_xprt *xprt);
/*
 * Drops it amid a delivery on another thread, while a third thread holds the
 * send lock, and ends the transport.
 */
int fake_leave_amid(struct rpc_xprt *xprt,
		    void (*deliver)(struct rpc_xprt *xprt));

/* nfs4: one that sends a call again on a new connection only. */
struct rpc_clnt *fake_clnt(bool soft, bool nfs4);
struct rpc_xprt *fake_clnt_xprt(struct rpc_clnt *clnt);
void fake_clnt_end(struct rpc_clnt *clnt);

/* Starts a call; its result is waited for, once. */
struct rpc_task *fake_call(struct rpc_clnt *clnt, enum fake_proc proc,
			   struct fake_io *io);
/* A thread that makes a call of nothing itself, as a process does; how it ended. */
struct task_struct *fake_process(struct rpc_clnt *clnt);
int fake_process_end(struct task_struct *process);
/* How often copies of pages were freed since the last time. */
int fake_releases(void);
bool fake_is_over(struct rpc_task *task);
int fake_wait(struct rpc_task *task);
/* Kills those that have a slot; each result must be waited for all the same. */
void fake_kill(struct rpc_clnt *clnt);

struct page *fake_page(void);
void fake_page_free(struct page *page);
void *fake_page_address(struct page *page);
/* Whether all bytes that a message could have are zero. */
bool fake_is_zero(const struct xdr_buf *buf);

#endif
