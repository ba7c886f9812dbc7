/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints. rust/sunrpc/trace.rs has a function for each of them. The Rust
 * code uses a static branch to test whether a tracepoint is on.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM xprtrdma_rs

#if !defined(_XPRTRDMA_RS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XPRTRDMA_RS_TRACE_H

#include <linux/tracepoint.h>

/* xprt is the number of the transport in sysfs and debugfs. */

TRACE_EVENT(xprtrdma_connected,
	    TP_PROTO(u32 xprt, u32 epoch, u32 call_max, u32 reply_max, u32 credits,
		     u32 version),
	    TP_ARGS(xprt, epoch, call_max, reply_max, credits, version),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, epoch)
			     __field(u32, call_max)
			     __field(u32, reply_max)
			     __field(u32, credits)
			     __field(u32, version)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->epoch = epoch;
			   __entry->call_max = call_max;
			   __entry->reply_max = reply_max;
			   __entry->credits = credits;
			   __entry->version = version;),
	    TP_printk("xprt=%u epoch=%u call_max=%u reply_max=%u credits=%u version=%u",
		      __entry->xprt, __entry->epoch, __entry->call_max,
		      __entry->reply_max, __entry->credits,
		      __entry->version)
);

DECLARE_EVENT_CLASS(xprtrdma_connection_text,
		    TP_PROTO(u32 xprt, u32 epoch, const char *text, u32 len),
		    TP_ARGS(xprt, epoch, text, len),
		    TP_STRUCT__entry(__field(u32, xprt)
				     __field(u32, epoch)
				     __string_len(text, text, len)),
		    TP_fast_assign(__entry->xprt = xprt;
				   __entry->epoch = epoch;
				   __assign_str(text);),
		    TP_printk("xprt=%u epoch=%u cause=\"%s\"",
			      __entry->xprt, __entry->epoch, __get_str(text))
);

DEFINE_EVENT(xprtrdma_connection_text, xprtrdma_connect_failed,
	     TP_PROTO(u32 xprt, u32 epoch, const char *text, u32 len),
	     TP_ARGS(xprt, epoch, text, len)
);

DEFINE_EVENT(xprtrdma_connection_text, xprtrdma_disconnected,
	     TP_PROTO(u32 xprt, u32 epoch, const char *text, u32 len),
	     TP_ARGS(xprt, epoch, text, len)
);

TRACE_EVENT(xprtrdma_call,
	    TP_PROTO(u32 xprt, u32 xid, u32 len, u32 reads, u32 writes, u32 replies),
	    TP_ARGS(xprt, xid, len, reads, writes, replies),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, xid)
			     __field(u32, len)
			     __field(u32, reads)
			     __field(u32, writes)
			     __field(u32, replies)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->xid = xid;
			   __entry->len = len;
			   __entry->reads = reads;
			   __entry->writes = writes;
			   __entry->replies = replies;),
	    TP_printk("xprt=%u xid=0x%08x len=%u read_segs=%u write_segs=%u reply_segs=%u",
		      __entry->xprt, __entry->xid, __entry->len, __entry->reads,
		      __entry->writes, __entry->replies)
);

TRACE_EVENT(xprtrdma_register,
	    TP_PROTO(u32 xprt, u32 xid, u32 handle, u64 offset, u32 len, bool write),
	    TP_ARGS(xprt, xid, handle, offset, len, write),
	    TP_STRUCT__entry(__field(u64, offset)
			     __field(u32, xprt)
			     __field(u32, xid)
			     __field(u32, handle)
			     __field(u32, len)
			     __field(bool, write)),
	    TP_fast_assign(__entry->offset = offset;
			   __entry->xprt = xprt;
			   __entry->xid = xid;
			   __entry->handle = handle;
			   __entry->len = len;
			   __entry->write = write;),
	    TP_printk("xprt=%u xid=0x%08x handle=0x%08x offset=0x%016llx len=%u access=%s",
		      __entry->xprt, __entry->xid, __entry->handle,
		      __entry->offset, __entry->len,
		      __entry->write ? "write" : "read")
);

TRACE_EVENT(xprtrdma_reply,
	    TP_PROTO(u32 xprt, u32 xid, u32 len, u32 placed, u32 credits),
	    TP_ARGS(xprt, xid, len, placed, credits),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, xid)
			     __field(u32, len)
			     __field(u32, placed)
			     __field(u32, credits)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->xid = xid;
			   __entry->len = len;
			   __entry->placed = placed;
			   __entry->credits = credits;),
	    TP_printk("xprt=%u xid=0x%08x len=%u placed=%u credits=%u",
		      __entry->xprt, __entry->xid, __entry->len, __entry->placed,
		      __entry->credits)
);

TRACE_EVENT(xprtrdma_invalidate,
	    TP_PROTO(u32 xprt, u32 slot, u32 regions),
	    TP_ARGS(xprt, slot, regions),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, slot)
			     __field(u32, regions)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->slot = slot;
			   __entry->regions = regions;),
	    TP_printk("xprt=%u slot=%u regions=%u",
		      __entry->xprt, __entry->slot, __entry->regions)
);

TRACE_EVENT(xprtrdma_complete,
	    TP_PROTO(u32 xprt, u32 xid, int status),
	    TP_ARGS(xprt, xid, status),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, xid)
			     __field(int, status)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->xid = xid;
			   __entry->status = status;),
	    TP_printk("xprt=%u xid=0x%08x status=%d",
		      __entry->xprt, __entry->xid, __entry->status)
);

TRACE_EVENT(xprtrdma_callback,
	    TP_PROTO(u32 xprt, u32 xid, u32 len),
	    TP_ARGS(xprt, xid, len),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, xid)
			     __field(u32, len)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->xid = xid;
			   __entry->len = len;),
	    TP_printk("xprt=%u xid=0x%08x len=%u",
		      __entry->xprt, __entry->xid, __entry->len)
);

TRACE_EVENT(xprtrdma_discard,
	    TP_PROTO(u32 xprt, u32 xid, const char *text, u32 len),
	    TP_ARGS(xprt, xid, text, len),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, xid)
			     __string_len(text, text, len)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->xid = xid;
			   __assign_str(text);),
	    TP_printk("xprt=%u xid=0x%08x counter=%s",
		      __entry->xprt, __entry->xid, __get_str(text))
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
