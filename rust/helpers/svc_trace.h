/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of the server's module. rust/svc/trace.rs has a function for each
 * of them. The Rust function tests with a static branch whether the tracepoint is
 * enabled.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM svcrdma_rs

#if !defined(_SVCRDMA_RS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _SVCRDMA_RS_TRACE_H

#include <linux/sunrpc/svc_xprt.h>
#include <linux/tracepoint.h>

/* peer is the client's IPv4 or IPv6 address. */

TRACE_EVENT(svcrdma_accepted,
	    TP_PROTO(const struct sockaddr *peer, const char *text, u32 len,
		     u32 call_max, u32 reply_max, u32 reads),
	    TP_ARGS(peer, text, len, call_max, reply_max, reads),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __string_len(text, text, len)
			     __field(u32, call_max)
			     __field(u32, reply_max)
			     __field(u32, reads)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __assign_str(text);
			   __entry->call_max = call_max;
			   __entry->reply_max = reply_max;
			   __entry->reads = reads;),
	    TP_printk("peer=%pISpc device=%s call_max=%u reply_max=%u reads=%u",
		      __get_sockaddr(peer), __get_str(text), __entry->call_max,
		      __entry->reply_max, __entry->reads)
);

TRACE_EVENT(svcrdma_rejected,
	    TP_PROTO(const struct sockaddr *peer, int status),
	    TP_ARGS(peer, status),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __field(int, status)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __entry->status = status;),
	    TP_printk("peer=%pISpc status=%d", __get_sockaddr(peer),
		      __entry->status)
);

TRACE_EVENT(svcrdma_closed,
	    TP_PROTO(const struct sockaddr *peer, const char *text, u32 len),
	    TP_ARGS(peer, text, len),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __string_len(text, text, len)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __assign_str(text);),
	    TP_printk("peer=%pISpc cause=\"%s\"", __get_sockaddr(peer),
		      __get_str(text))
);

TRACE_EVENT(svcrdma_call,
	    TP_PROTO(const struct sockaddr *peer, u32 xid, u32 version, u32 len,
		     u32 credits),
	    TP_ARGS(peer, xid, version, len, credits),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __field(u32, xid)
			     __field(u32, version)
			     __field(u32, len)
			     __field(u32, credits)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __entry->xid = xid;
			   __entry->version = version;
			   __entry->len = len;
			   __entry->credits = credits;),
	    TP_printk("peer=%pISpc xid=0x%08x version=%u len=%u credits=%u",
		      __get_sockaddr(peer), __entry->xid, __entry->version,
		      __entry->len, __entry->credits)
);

TRACE_EVENT(svcrdma_read,
	    TP_PROTO(const struct sockaddr *peer, u32 xid, u32 bytes, u32 wrs),
	    TP_ARGS(peer, xid, bytes, wrs),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __field(u32, xid)
			     __field(u32, bytes)
			     __field(u32, wrs)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __entry->xid = xid;
			   __entry->bytes = bytes;
			   __entry->wrs = wrs;),
	    TP_printk("peer=%pISpc xid=0x%08x bytes=%u wrs=%u",
		      __get_sockaddr(peer), __entry->xid, __entry->bytes,
		      __entry->wrs)
);

TRACE_EVENT(svcrdma_reply,
	    TP_PROTO(const struct sockaddr *peer, u32 xid, u32 len, u32 written,
		     u32 invalidated),
	    TP_ARGS(peer, xid, len, written, invalidated),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __field(u32, xid)
			     __field(u32, len)
			     __field(u32, written)
			     __field(u32, invalidated)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __entry->xid = xid;
			   __entry->len = len;
			   __entry->written = written;
			   __entry->invalidated = invalidated;),
	    TP_printk("peer=%pISpc xid=0x%08x len=%u written=%u invalidated=0x%08x",
		      __get_sockaddr(peer), __entry->xid, __entry->len,
		      __entry->written, __entry->invalidated)
);

TRACE_EVENT(svcrdma_refused,
	    TP_PROTO(const struct sockaddr *peer, u32 xid, const char *text,
		     u32 len),
	    TP_ARGS(peer, xid, text, len),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __field(u32, xid)
			     __string_len(text, text, len)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __entry->xid = xid;
			   __assign_str(text);),
	    TP_printk("peer=%pISpc xid=0x%08x fault=\"%s\"",
		      __get_sockaddr(peer), __entry->xid, __get_str(text))
);

TRACE_EVENT(svcrdma_dropped,
	    TP_PROTO(const struct sockaddr *peer, u32 xid, u32 len),
	    TP_ARGS(peer, xid, len),
	    TP_STRUCT__entry(__sockaddr(peer, svc_addr_len(peer))
			     __field(u32, xid)
			     __field(u32, len)),
	    TP_fast_assign(__assign_sockaddr(peer, peer, svc_addr_len(peer));
			   __entry->xid = xid;
			   __entry->len = len;),
	    TP_printk("peer=%pISpc xid=0x%08x len=%u", __get_sockaddr(peer),
		      __entry->xid, __entry->len)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE svc_trace
#include <trace/define_trace.h>
