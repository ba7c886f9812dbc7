/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C side: a function for each static inline or macro that
 * Rust cannot call, and objects that only C can define. bindgen reads this file
 * and helpers.c includes it, so the compiler checks the C definitions and the
 * Rust callers against the same prototypes.
 */
#ifndef _XPRTRDMA_RS_HELPERS_H
#define _XPRTRDMA_RS_HELPERS_H

#include <linux/jump_label.h>
#include <linux/rcuwait.h>
#include <linux/scatterlist.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/xprt.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* The version that rust/version.sh printed when the module was built. */
const char *xprtrdma_version(void);

/* Functions of ib_core. */
int xprtrdma_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
		       const struct ib_send_wr **bad);
/*
 * Returns the value of the port's counter with this name, or 0 if the port has
 * no such counter. May sleep.
 */
u64 xprtrdma_port_counter(struct ib_device *dev, u32 port, const char *name);
bool xprtrdma_req_notify(struct ib_cq *cq);
int xprtrdma_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr);
/*
 * The directions are numbers, because bindgen converts the kernel's enum to
 * different Rust types in different kernel versions.
 */
enum xprtrdma_dma_direction {
	XPRTRDMA_DMA_TO_DEVICE = DMA_TO_DEVICE,
	XPRTRDMA_DMA_FROM_DEVICE = DMA_FROM_DEVICE,
	XPRTRDMA_DMA_BIDIRECTIONAL = DMA_BIDIRECTIONAL,
};

u64 xprtrdma_dma_map_single(struct ib_device *dev, void *addr, size_t len,
			    unsigned int dir);
void xprtrdma_dma_unmap_single(struct ib_device *dev, u64 addr, size_t len,
			       unsigned int dir);
int xprtrdma_dma_mapping_error(struct ib_device *dev, u64 addr);
bool xprtrdma_dma_need_sync(struct ib_device *dev, u64 addr);
void xprtrdma_dma_sync_for_cpu(struct ib_device *dev, u64 addr, size_t len,
			       unsigned int dir);
void xprtrdma_dma_sync_for_device(struct ib_device *dev, u64 addr, size_t len,
				  unsigned int dir);
int xprtrdma_dma_map_sg(struct ib_device *dev, struct scatterlist *sg,
			int nents, unsigned int dir);
void xprtrdma_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg,
			   int nents, unsigned int dir);
u32 xprtrdma_dma_max_entry(struct ib_device *dev);

/* Modules. */
bool xprtrdma_is_out_of_tree(const char *module);

/* Functions of rdma_cm. */
bool xprtrdma_port_is_active(struct rdma_cm_id *id);

/* Networks. */
/* An IP address of an interface that is up. */
struct xprtrdma_address {
	/* The IPv6 address, or the IPv4 address in the first four bytes. */
	u8 bytes[16];
	u32 interface;
	/* Prefix length of the network on the interface's link. */
	u8 prefix_len;
	bool ipv6;
	/*
	 * Whether the address is tentative, deprecated or temporary, or has failed
	 * duplicate address detection.
	 */
	bool passing;
};

unsigned int xprtrdma_addresses(struct net *net, struct xprtrdma_address *to,
				unsigned int room);
unsigned int xprtrdma_netns_number(const struct net *net);
struct net *xprtrdma_current_net(void);

/* Blocks this thread for ever, unless the module is being unloaded. */
void xprtrdma_must_be_unloading(void);
/* Waits for threads that were preempted in a function of this module. May sleep. */
void xprtrdma_wait_for_preempted(void);

/* Memory. */
struct page *xprtrdma_virt_to_page(const void *addr);
unsigned int xprtrdma_memalloc_nofs_save(void);
bool xprtrdma_is_prompt(void);
void xprtrdma_memalloc_nofs_restore(unsigned int flags);

/* Objects and functions of sunrpc. */
extern struct xprt_class xprtrdma_class;
void xprtrdma_xprt_set_connected(struct rpc_xprt *xprt);
void xprtrdma_xprt_clear_connecting(struct rpc_xprt *xprt);
void xprtrdma_xprt_clear_cwnd_wait(struct rpc_xprt *xprt);
void xprtrdma_xprt_wake_locker(struct rpc_xprt *xprt);
void xprtrdma_xprt_set_bound(struct rpc_xprt *xprt);
void *xprtrdma_task_alloc(size_t len);
struct page *xprtrdma_task_page(void);
void xprtrdma_count_callback(struct rpc_xprt *xprt);
bool xprtrdma_is_dying(struct rpc_xprt *xprt);
bool xprtrdma_put_unless_last(struct rpc_xprt *xprt);
void xprtrdma_set_port(struct rpc_xprt *xprt, unsigned short port);
char *xprtrdma_kstrdup(const char *s);

/*
 * Whether the stages of calls are timed. The key is in a struct, because the
 * macro static_branch_unlikely!() of Rust takes a struct and a field.
 */
struct xprtrdma_switch {
	struct static_key_false key;
};

extern struct xprtrdma_switch xprtrdma_latency;
void xprtrdma_set_latency(bool on);

/* Indexes of the sysctls in /proc/sys/sunrpc. */
enum xprtrdma_sysctl_index {
	XPRTRDMA_SYSCTL_SLOTS,
	XPRTRDMA_SYSCTL_INLINE_READ,
	XPRTRDMA_SYSCTL_INLINE_WRITE,
	XPRTRDMA_SYSCTL_VERSION,
	XPRTRDMA_SYSCTLS,
};

struct ctl_table_header *xprtrdma_register_sysctls(void);
void xprtrdma_unregister_sysctls(struct ctl_table_header *header);
void xprtrdma_preset_sysctl(enum xprtrdma_sysctl_index index, u32 value,
			    u32 least, u32 most, u32 unit);
u32 xprtrdma_read_sysctl(enum xprtrdma_sysctl_index index);

/*
 * Returns the value of the parameter `remote_invalidation`: 1 for "auto", 0 for
 * "never", negative for any other text.
 */
int xprtrdma_remote_invalidation(void);

/* The settings of a network namespace. The value of each setting is a text. */
enum xprtrdma_setting {
	XPRTRDMA_SETTING_RAILS,
	XPRTRDMA_SETTING_RAIL_SERVERS,
	XPRTRDMA_SETTINGS,
};

/*
 * Checks a new value of a setting: `len` bytes of text without a final NUL.
 * Returns 0 if the value is allowed, or a negative errno.
 */
typedef int xprtrdma_setting_check(enum xprtrdma_setting index,
				   const char *text, size_t len);

const char *xprtrdma_setting_parameter(enum xprtrdma_setting index);
int xprtrdma_register_settings(xprtrdma_setting_check *may_be);
void xprtrdma_unregister_settings(void);
int xprtrdma_set_setting(struct net *net, enum xprtrdma_setting index,
			 const char *text, size_t len);
/* Locks the settings of the namespace until xprtrdma_release_settings(). */
const char *xprtrdma_hold_setting(struct net *net, enum xprtrdma_setting index,
				  size_t *len);
void xprtrdma_release_settings(struct net *net);
unsigned int xprtrdma_settings_changes(struct net *net);

/*
 * Bitmaps of at least one bit. A set bit is free. A thread takes a free bit,
 * and puts it back later. Each put is a full barrier, and so is each take that
 * succeeds.
 */
unsigned long xprtrdma_take_bit(unsigned long *bits, unsigned long count);
bool xprtrdma_take_this_bit(unsigned long *bits, unsigned long bit);
void xprtrdma_put_bit(unsigned long *bits, unsigned long bit);

/* Waiting, time and logging. */
#define XPRTRDMA_POLLER_WAITS 1
void xprtrdma_wait_poller(struct rcuwait *w, const atomic_t *poller);
void xprtrdma_wait_value(atomic_long_t *v, long value);
void xprtrdma_wait_other(atomic_t *v, int value);
void xprtrdma_wait_value_timeout(atomic_long_t *v, long value,
				 unsigned long timeout);
bool xprtrdma_may_linger(void);
void xprtrdma_wake_var(atomic_t *v);
unsigned long xprtrdma_msecs_to_jiffies(unsigned int ms);
unsigned int xprtrdma_jiffies_to_msecs(unsigned long j);
struct workqueue_struct *xprtrdma_alloc_workqueue(const char *name);
u32 xprtrdma_random(void);
bool xprtrdma_may_log(void);

/* A file in debugfs, which keeps this module loaded while it is open. */
struct xprtrdma_file {
	int (*show)(const struct xprtrdma_file *file, struct seq_file *seq);
	ssize_t (*write)(const struct xprtrdma_file *file, void *from,
			 size_t len);
};

/*
 * These functions return an error as an error pointer. The parameters "dir" and
 * "parent" may be error pointers, too.
 */
struct dentry *xprtrdma_debugfs_file(const char *name, struct dentry *dir,
				     const struct xprtrdma_file *file);
struct dentry *xprtrdma_debugfs_dir(const char *name, struct dentry *parent);
/* Waits until no read or write of the file is in progress. */
void xprtrdma_debugfs_remove(struct dentry *entry);

#endif
