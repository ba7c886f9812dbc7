// SPDX-License-Identifier: GPL-2.0
/*
 * The C side of xprtrdma_rs: wrappers of static inlines and macros, the object
 * of the transport class, and the table of sysctls. Rust cannot define the
 * transport class, because the class has a flexible array. This file makes no
 * policy decisions.
 */
#include <linux/bitops.h>
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/freezer.h>
#include <linux/highmem.h>
#include <linux/inetdevice.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/panic.h>
#include <linux/random.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/sched/deadline.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/wait_bit.h>
#include <net/addrconf.h>
#include <net/if_inet6.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

#include "helpers.h"

MODULE_VERSION(XPRTRDMA_VERSION);

const char *xprtrdma_version(void)
{
	return XPRTRDMA_VERSION;
}

int xprtrdma_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
		       const struct ib_send_wr **bad)
{
	/*
	 * Does the same as ib_post_send(), but has no local variable for the
	 * unused "bad" pointer. For such a variable the compiler adds a stack
	 * guard, which costs twelve instructions.
	 */
	return qp->device->ops.post_send(qp, wr, bad);
}

u64 xprtrdma_port_counter(struct ib_device *dev, u32 port, const char *name)
{
	struct rdma_hw_stats *stats;
	u64 value = 0;
	int i, filled;

	if (!dev->ops.alloc_hw_port_stats || !dev->ops.get_hw_stats)
		return 0;
	stats = dev->ops.alloc_hw_port_stats(dev, port);
	if (!stats)
		return 0;
	filled = dev->ops.get_hw_stats(dev, stats, port, stats->num_counters);
	for (i = 0; i < min(filled, stats->num_counters); i++)
		if (!strcmp(stats->descs[i].name, name))
			value = stats->value[i];
	rdma_free_hw_stats_struct(stats);
	return value;
}

bool xprtrdma_req_notify(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				    IB_CQ_REPORT_MISSED_EVENTS) > 0;
}

int xprtrdma_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	return ib_post_recv(qp, wr, NULL);
}

u64 xprtrdma_dma_map_single(struct ib_device *dev, void *addr, size_t len,
			    unsigned int dir)
{
	return ib_dma_map_single(dev, addr, len, dir);
}

void xprtrdma_dma_unmap_single(struct ib_device *dev, u64 addr, size_t len,
			       unsigned int dir)
{
	ib_dma_unmap_single(dev, addr, len, dir);
}

int xprtrdma_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

bool xprtrdma_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return !ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr);
}

void xprtrdma_dma_sync_for_cpu(struct ib_device *dev, u64 addr, size_t len,
			       unsigned int dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, len, dir);
}

void xprtrdma_dma_sync_for_device(struct ib_device *dev, u64 addr, size_t len,
				  unsigned int dir)
{
	ib_dma_sync_single_for_device(dev, addr, len, dir);
}

int xprtrdma_dma_map_sg(struct ib_device *dev, struct scatterlist *sg,
			int nents, unsigned int dir)
{
	return ib_dma_map_sg(dev, sg, nents, dir);
}

void xprtrdma_dma_unmap_sg(struct ib_device *dev, struct scatterlist *sg,
			   int nents, unsigned int dir)
{
	ib_dma_unmap_sg(dev, sg, nents, dir);
}

u32 xprtrdma_dma_max_entry(struct ib_device *dev)
{
	size_t most = ib_dma_max_seg_size(dev);

	if (!ib_uses_virt_dma(dev))
		most = min(most, dma_max_mapping_size(dev->dma_device));
	return most;
}

/*
 * Returns true if a module of this name is loaded and was not built in the
 * kernel's own tree. The kset that contains this module contains all modules.
 * The reference to the kobject keeps the module from being freed, because a
 * module is freed only after the last reference to its kobject is dropped.
 */
bool xprtrdma_is_out_of_tree(const char *module)
{
	struct kset *modules = THIS_MODULE->mkobj.kobj.kset;
	struct kobject *kobj = modules ? kset_find_obj(modules, module) : NULL;
	struct module *found;
	bool foreign;

	if (!kobj)
		return false;
	/*
	 * A built-in module has a kobject for its parameters, but the pointer
	 * `mod` in that kobject is NULL.
	 */
	found = container_of(kobj, struct module_kobject, kobj)->mod;
	foreign = found && test_bit(TAINT_OOT_MODULE, &found->taints);
	kobject_put(kobj);
	return foreign;
}

bool xprtrdma_port_is_active(struct rdma_cm_id *id)
{
	enum ib_port_state state;

	return !ib_get_cached_port_state(id->device, id->port_num, &state) &&
	       state == IB_PORT_ACTIVE;
}

#define PASSING	(IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_DEPRECATED | \
		 IFA_F_TEMPORARY)

static unsigned int ipv4_addresses(struct net_device *dev,
				   struct xprtrdma_address *to,
				   unsigned int found, unsigned int room)
{
	struct in_device *in = __in_dev_get_rcu(dev);
	const struct in_ifaddr *ifa;

	if (!in)
		return found;
	in_dev_for_each_ifa_rcu(ifa, in) {
		if (found < room) {
			to[found] = (struct xprtrdma_address) {
				.interface = dev->ifindex,
				.prefix_len = ifa->ifa_prefixlen,
				/*
				 * For IPv4 the bit IFA_F_TEMPORARY marks a
				 * secondary address, not a temporary address.
				 */
				.passing = READ_ONCE(ifa->ifa_flags) &
					   PASSING & ~IFA_F_TEMPORARY,
			};
			memcpy(to[found].bytes, &ifa->ifa_local,
			       sizeof(ifa->ifa_local));
		}
		found++;
	}
	return found;
}

static unsigned int ipv6_addresses(struct net_device *dev,
				   struct xprtrdma_address *to,
				   unsigned int found, unsigned int room)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct inet6_dev *in6 = __in6_dev_get(dev);
	const struct inet6_ifaddr *ifa;

	if (!in6)
		return found;
	list_for_each_entry_rcu(ifa, &in6->addr_list, if_list) {
		if (found < room) {
			to[found] = (struct xprtrdma_address) {
				.interface = dev->ifindex,
				.prefix_len = ifa->prefix_len,
				.ipv6 = true,
				.passing = READ_ONCE(ifa->flags) & PASSING,
			};
			memcpy(to[found].bytes, &ifa->addr, sizeof(ifa->addr));
		}
		found++;
	}
#endif
	return found;
}

/*
 * Finds the addresses of all interfaces that are up, and writes at most "room"
 * of these addresses to the array. Returns the number of addresses that exist.
 */
unsigned int xprtrdma_addresses(struct net *net, struct xprtrdma_address *to,
				unsigned int room)
{
	struct net_device *dev;
	unsigned int found = 0;

	rcu_read_lock();
	for_each_netdev_rcu(net, dev) {
		if (!(READ_ONCE(dev->flags) & IFF_UP))
			continue;
		found = ipv4_addresses(dev, to, found, room);
		found = ipv6_addresses(dev, to, found, room);
	}
	rcu_read_unlock();
	return found;
}

unsigned int xprtrdma_netns_number(const struct net *net)
{
	return net->ns.inum;
}

struct net *xprtrdma_current_net(void)
{
	/* A process that exits has no namespaces any more. */
	return current->nsproxy ? current->nsproxy->net_ns : &init_net;
}

struct page *xprtrdma_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}

unsigned int xprtrdma_memalloc_nofs_save(void)
{
	return memalloc_nofs_save();
}

bool xprtrdma_is_prompt(void)
{
	/*
	 * The priority number of a deadline task is -1. The cast makes it a
	 * large number, so the function returns false.
	 */
	return (unsigned int)current->prio <= DEFAULT_PRIO &&
	       current->policy != SCHED_IDLE;
}

void xprtrdma_memalloc_nofs_restore(unsigned int flags)
{
	memalloc_nofs_restore(flags);
}

/*
 * rmmod makes the reference count negative, and fails if it is positive. The
 * module's state would prove less: if the initialisation of the module fails,
 * the state becomes MODULE_STATE_GOING in spite of references to the module.
 */
static bool is_unloading(void)
{
#ifdef CONFIG_MODULE_UNLOAD
	return module_refcount(THIS_MODULE) < 0;
#else
	return false;
#endif
}

void xprtrdma_must_be_unloading(void)
{
	/*
	 * If the caller continued, it would free memory or code that other
	 * threads may still use. So the caller waits here for ever.
	 */
	while (WARN_ON_ONCE(!is_unloading()))
		schedule_timeout_uninterruptible(MAX_SCHEDULE_TIMEOUT);
}

void xprtrdma_wait_for_preempted(void)
{
	synchronize_rcu_tasks();
}

#ifndef XPRTRDMA_RDS
/* Registration::new() sets .setup before it registers the class. */
struct xprt_class xprtrdma_class = {
	.list = LIST_HEAD_INIT(xprtrdma_class.list),
	.ident = XPRT_TRANSPORT_RDMA,
	.owner = THIS_MODULE,
	.name = "rdma",
	.netid = { "rdma", "rdma6", "" },
};

void xprtrdma_xprt_set_connected(struct rpc_xprt *xprt)
{
	xprt_set_connected(xprt);
}

void xprtrdma_xprt_clear_connecting(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
}

void xprtrdma_xprt_clear_cwnd_wait(struct rpc_xprt *xprt)
{
	clear_bit(XPRT_CWND_WAIT, &xprt->state);
}

void xprtrdma_xprt_wake_locker(struct rpc_xprt *xprt)
{
	/* Orders the release of the lock before the check for waiting tasks. */
	smp_mb();
	wake_up_bit(&xprt->state, XPRT_LOCKED);
}

void xprtrdma_xprt_set_bound(struct rpc_xprt *xprt)
{
	xprt_set_bound(xprt);
}

void *xprtrdma_task_alloc(size_t len)
{
	return kzalloc(len, rpc_task_gfp_mask());
}

struct page *xprtrdma_task_page(void)
{
	return alloc_page(rpc_task_gfp_mask() | __GFP_ZERO);
}

void xprtrdma_count_callback(struct rpc_xprt *xprt)
{
	atomic_inc(&xprt->bc_slot_count);
}

bool xprtrdma_is_dying(struct rpc_xprt *xprt)
{
	return kref_read(&xprt->kref) == 0;
}

bool xprtrdma_put_unless_last(struct rpc_xprt *xprt)
{
	return refcount_dec_not_one(&xprt->kref.refcount);
}

void xprtrdma_set_port(struct rpc_xprt *xprt, unsigned short port)
{
	rpc_set_port((struct sockaddr *)&xprt->addr, port);
}

char *xprtrdma_kstrdup(const char *s)
{
	return kstrdup(s, GFP_KERNEL);
}

struct xprtrdma_switch xprtrdma_latency = { .key = STATIC_KEY_FALSE_INIT };

void xprtrdma_set_latency(bool on)
{
	/* Only one thread may change the static branch at a time. */
	static DEFINE_MUTEX(lock);

	guard(mutex)(&lock);
	if (on)
		static_branch_enable(&xprtrdma_latency.key);
	else
		static_branch_disable(&xprtrdma_latency.key);
}

static struct xprtrdma_sysctl {
	u32 value;
	u32 least;
	u32 most;
	u32 unit;
} xprtrdma_sysctls[XPRTRDMA_SYSCTLS] = {
	[0 ... XPRTRDMA_SYSCTLS - 1] = { .unit = 1 },
};

/*
 * Rounds a written value down to a multiple of the unit, before the value is
 * stored.
 */
static int xprtrdma_sysctl_value(const struct ctl_table *table, int write,
				 void *buffer, size_t *lenp, loff_t *ppos)
{
	struct xprtrdma_sysctl *knob = table->data;
	u32 value = READ_ONCE(knob->value);
	const struct ctl_table copy = {
		.procname	= table->procname,
		.data		= &value,
		.maxlen		= sizeof(value),
		.mode		= table->mode,
		.extra1		= &knob->least,
		.extra2		= &knob->most,
	};
	int ret;

	ret = proc_douintvec_minmax(&copy, write, buffer, lenp, ppos);
	if (write && !ret)
		WRITE_ONCE(knob->value, value - value % knob->unit);
	return ret;
}

static const struct ctl_table xprtrdma_sysctl_table[] = {
	{
		.procname	= "rdma_slot_table_entries",
		.data		= &xprtrdma_sysctls[XPRTRDMA_SYSCTL_SLOTS],
		.maxlen		= sizeof(u32),
		.mode		= 0644,
		.proc_handler	= xprtrdma_sysctl_value,
	},
	{
		.procname	= "rdma_max_inline_read",
		.data		= &xprtrdma_sysctls[XPRTRDMA_SYSCTL_INLINE_READ],
		.maxlen		= sizeof(u32),
		.mode		= 0644,
		.proc_handler	= xprtrdma_sysctl_value,
	},
	{
		.procname	= "rdma_max_inline_write",
		.data		= &xprtrdma_sysctls[XPRTRDMA_SYSCTL_INLINE_WRITE],
		.maxlen		= sizeof(u32),
		.mode		= 0644,
		.proc_handler	= xprtrdma_sysctl_value,
	},
	{
		.procname	= "rdma_version",
		.data		= &xprtrdma_sysctls[XPRTRDMA_SYSCTL_VERSION],
		.maxlen		= sizeof(u32),
		.mode		= 0644,
		.proc_handler	= xprtrdma_sysctl_value,
	},
};

struct ctl_table_header *xprtrdma_register_sysctls(void)
{
	return register_sysctl("sunrpc", xprtrdma_sysctl_table);
}

void xprtrdma_unregister_sysctls(struct ctl_table_header *header)
{
	unregister_sysctl_table(header);
}

void xprtrdma_preset_sysctl(enum xprtrdma_sysctl_index index, u32 value,
			    u32 least, u32 most, u32 unit)
{
	struct xprtrdma_sysctl *knob = &xprtrdma_sysctls[index];

	knob->least = least;
	knob->most = most;
	knob->unit = unit;
	WRITE_ONCE(knob->value, value - value % unit);
}

u32 xprtrdma_read_sysctl(enum xprtrdma_sysctl_index index)
{
	return READ_ONCE(xprtrdma_sysctls[index].value);
}
#endif /* !XPRTRDMA_RDS */

unsigned long xprtrdma_take_bit(unsigned long *bits, unsigned long count)
{
	unsigned long first = 0, word, bit;

	do {
		while ((word = READ_ONCE(*bits))) {
			bit = __ffs(word);
			if (likely(test_and_clear_bit(bit, bits)))
				return first + bit;
		}
		bits++;
		first += BITS_PER_LONG;
	} while (first < count);
	return count;
}

bool xprtrdma_take_this_bit(unsigned long *bits, unsigned long bit)
{
	return test_bit(bit, bits) && test_and_clear_bit(bit, bits);
}

void xprtrdma_put_bit(unsigned long *bits, unsigned long bit)
{
	/*
	 * The caller's memory accesses become visible before the bit is set,
	 * and so before the accesses of the bit's next owner.
	 */
	smp_mb__before_atomic();
	set_bit(bit, bits);
	/*
	 * The caller's later check for waiting tasks must not be executed
	 * before the bit is set.
	 */
	smp_mb__after_atomic();
}

/*
 * A kernel thread gets no signal when it must freeze, so this function also
 * calls freezing().
 */
static bool is_poller_called(const atomic_t *poller)
{
	return atomic_read(poller) != XPRTRDMA_POLLER_WAITS ||
	       freezing(current);
}

void xprtrdma_wait_poller(struct rcuwait *w, const atomic_t *poller)
{
	might_sleep();
	prepare_to_rcuwait(w);
	do {
		/*
		 * The task state is set before the poller is checked, so that a
		 * change of the poller after the check wakes this thread.
		 */
		set_current_state(TASK_INTERRUPTIBLE);
		if (is_poller_called(poller) || signal_pending(current))
			break;
		schedule();
		/*
		 * schedule() usually returns because the poller was called. In
		 * this case the loop ends, and the task state is not set again.
		 */
	} while (!is_poller_called(poller));
	finish_rcuwait(w);
}

void xprtrdma_wait_value(atomic_long_t *v, long value)
{
	wait_var_event(v, atomic_long_read_acquire(v) == value);
}

void xprtrdma_wait_other(atomic_t *v, int value)
{
	wait_var_event(v, atomic_read_acquire(v) != value);
}

void xprtrdma_wait_value_timeout(atomic_long_t *v, long value,
				 unsigned long timeout)
{
	wait_var_event_timeout(v, atomic_long_read_acquire(v) == value,
			       timeout);
}

bool xprtrdma_may_linger(void)
{
	return !(current->flags & (PF_WQ_WORKER | PF_MEMALLOC));
}

void xprtrdma_wake_var(atomic_t *v)
{
	wake_up_var(v);
}

unsigned long xprtrdma_msecs_to_jiffies(unsigned int ms)
{
	return msecs_to_jiffies(ms);
}

unsigned int xprtrdma_jiffies_to_msecs(unsigned long j)
{
	return jiffies_to_msecs(j);
}

struct workqueue_struct *xprtrdma_alloc_workqueue(const char *name)
{
	return alloc_workqueue("%s", WQ_MEM_RECLAIM | WQ_UNBOUND | WQ_SYSFS, 0,
			       name);
}

u32 xprtrdma_random(void)
{
	return get_random_u32();
}

bool xprtrdma_may_log(void)
{
	static struct ratelimit_state rs =
		RATELIMIT_STATE_INIT_FLAGS(rs, 5 * HZ, 20, RATELIMIT_MSG_ON_RELEASE);

	return __ratelimit(&rs);
}

static int xprtrdma_file_show(struct seq_file *seq, void *unused)
{
	const struct xprtrdma_file *file = seq->private;

	return file->show ? file->show(file, seq) : -EINVAL;
}

static int xprtrdma_file_open(struct inode *inode, struct file *filp)
{
	return single_open(filp, xprtrdma_file_show, inode->i_private);
}

static ssize_t xprtrdma_file_write(struct file *filp, const char __user *buf,
				   size_t len, loff_t *pos)
{
	const struct xprtrdma_file *file = file_inode(filp)->i_private;

	return file->write ? file->write(file, (__force void *)buf, len) :
			     -EINVAL;
}

/*
 * debugfs calls the release function of an open file even if the file was
 * removed long ago. The owner field of the file's operations keeps the code of
 * that function loaded: rmmod fails while a file is open.
 */
static const struct file_operations xprtrdma_file_ops = {
	.owner = THIS_MODULE,
	.open = xprtrdma_file_open,
	.read = seq_read,
	.write = xprtrdma_file_write,
	.llseek = seq_lseek,
	.release = single_release,
};

struct dentry *xprtrdma_debugfs_file(const char *name, struct dentry *dir,
				     const struct xprtrdma_file *file)
{
	umode_t mode = (file->show ? 0400 : 0) | (file->write ? 0200 : 0);
	struct dentry *old;

	/*
	 * If the name exists, debugfs_create_file() would write an error to the
	 * log. So the name is looked up first.
	 */
	old = IS_ERR(dir) ? NULL : debugfs_lookup(name, dir);
	if (old) {
		dput(old);
		return ERR_PTR(-EEXIST);
	}
	return debugfs_create_file(name, mode, dir, (void *)file,
				   &xprtrdma_file_ops);
}

struct dentry *xprtrdma_debugfs_dir(const char *name, struct dentry *parent)
{
	return debugfs_create_dir(name, parent);
}

void xprtrdma_debugfs_remove(struct dentry *entry)
{
	debugfs_remove(entry);
}
