// SPDX-License-Identifier: GPL-2.0
/*
 * Text settings of a network namespace. Each setting has a module parameter,
 * which provides the initial value, and a file in /proc/sys/sunrpc of each
 * namespace. The Rust code decides which texts are valid.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "helpers.h"

static char *remote_invalidation = "auto";
module_param(remote_invalidation, charp, 0444);
MODULE_PARM_DESC(remote_invalidation, "Let servers invalidate regions: auto where that is proven, or never (default auto)");

int xprtrdma_remote_invalidation(void)
{
	static const char * const values[] = { "never", "auto" };

	return match_string(values, ARRAY_SIZE(values), remote_invalidation);
}

static char *rails = "";
module_param(rails, charp, 0444);
MODULE_PARM_DESC(rails, "Local addresses or RDMA devices that connections may take: off, auto or a list (default off)");

static char *rail_servers = "";
module_param(rail_servers, charp, 0444);
MODULE_PARM_DESC(rail_servers, "Further addresses of servers: groups of addresses of one server, joined by = (default none)");

/* The settings of one namespace. They are freed with the namespace. */
struct space {
	/* Held while the texts are read or changed. */
	struct mutex lock;
	struct setting {
		enum xprtrdma_setting index;
		struct space *space;
		char *text;
		size_t len;
	} settings[XPRTRDMA_SETTINGS];
	/* Number of changes of these settings. */
	unsigned int changes;
	/* A copy of the sysctl table. Linux 7.2 requires a writable table. */
	void *table;
	struct ctl_table_header *header;
};

static unsigned int space_id;
static xprtrdma_setting_check *check;

const char *xprtrdma_setting_parameter(enum xprtrdma_setting index)
{
	return index == XPRTRDMA_SETTING_RAILS ? rails : rail_servers;
}

static int set(struct setting *setting, const char *text, size_t len)
{
	struct space *space = setting->space;
	char *copy;
	int err;

	/* The shell's echo command appends a newline. */
	if (len && text[len - 1] == '\n')
		len--;
	err = check(setting->index, text, len);
	if (err)
		return err;
	copy = kmemdup_nul(text, len, GFP_KERNEL_ACCOUNT);
	if (!copy)
		return -ENOMEM;
	mutex_lock(&space->lock);
	swap(setting->text, copy);
	setting->len = len;
	WRITE_ONCE(space->changes, space->changes + 1);
	mutex_unlock(&space->lock);
	kfree(copy);
	return 0;
}

static int handle(const struct ctl_table *table, int write, void *buffer,
		  size_t *lenp, loff_t *ppos)
{
	struct setting *setting = table->data;
	int ret;

	if (write) {
		/*
		 * A text must be written as a whole, with one call of write(2).
		 */
		ret = *ppos ? -EINVAL : set(setting, buffer, *lenp);
		if (!ret)
			*ppos += *lenp;
		return ret;
	}
	guard(mutex)(&setting->space->lock);
	const struct ctl_table text = {
		.procname	= table->procname,
		.data		= setting->text,
		.maxlen		= setting->len + 1,
	};
	return proc_dostring(&text, 0, buffer, lenp, ppos);
}

static void free_space(struct space *space)
{
	unsigned int i;

	for (i = 0; i < XPRTRDMA_SETTINGS; i++)
		kfree(space->settings[i].text);
	kfree(space->table);
}

/* Makes the files of a namespace's settings. */
static int make_files(struct net *net, struct space *space)
{
	const struct ctl_table table[] = {
		{
			.procname	= "rdma_rails",
			.data		= &space->settings[XPRTRDMA_SETTING_RAILS],
			.mode		= 0644,
			.proc_handler	= handle,
		},
		{
			.procname	= "rdma_rail_servers",
			.data		= &space->settings[XPRTRDMA_SETTING_RAIL_SERVERS],
			.mode		= 0644,
			.proc_handler	= handle,
		},
	};

	space->table = kmemdup(table, sizeof(table), GFP_KERNEL_ACCOUNT);
	if (!space->table)
		return -ENOMEM;
	/* If the registration fails, the module parameters stay in force. */
	space->header = register_net_sysctl_sz(net, "sunrpc", space->table,
					       ARRAY_SIZE(table));
	return 0;
}

static int __net_init space_init(struct net *net)
{
	struct space *space = net_generic(net, space_id);
	unsigned int i;
	int err;

	mutex_init(&space->lock);
	for (i = 0; i < XPRTRDMA_SETTINGS; i++) {
		struct setting *setting = &space->settings[i];

		setting->index = i;
		setting->space = space;
		setting->text = kstrdup(xprtrdma_setting_parameter(i),
					GFP_KERNEL_ACCOUNT);
		if (!setting->text) {
			err = -ENOMEM;
			goto fail;
		}
		setting->len = strlen(setting->text);
	}
	err = make_files(net, space);
	if (!err)
		return 0;
fail:
	free_space(space);
	return err;
}

static void __net_exit space_exit(struct net *net)
{
	struct space *space = net_generic(net, space_id);

	if (space->header)
		unregister_net_sysctl_table(space->header);
	free_space(space);
}

static struct pernet_operations space_ops = {
	.init	= space_init,
	.exit	= space_exit,
	.id	= &space_id,
	.size	= sizeof(struct space),
};

int xprtrdma_register_settings(xprtrdma_setting_check *may_be)
{
	check = may_be;
	return register_pernet_subsys(&space_ops);
}

void xprtrdma_unregister_settings(void)
{
	unregister_pernet_subsys(&space_ops);
}

int xprtrdma_set_setting(struct net *net, enum xprtrdma_setting index,
			 const char *text, size_t len)
{
	struct space *space = net_generic(net, space_id);

	return set(&space->settings[index], text, len);
}

const char *xprtrdma_hold_setting(struct net *net, enum xprtrdma_setting index,
				  size_t *len)
{
	struct space *space = net_generic(net, space_id);

	mutex_lock(&space->lock);
	*len = space->settings[index].len;
	return space->settings[index].text;
}

void xprtrdma_release_settings(struct net *net)
{
	struct space *space = net_generic(net, space_id);

	mutex_unlock(&space->lock);
}

unsigned int xprtrdma_settings_changes(struct net *net)
{
	struct space *space = net_generic(net, space_id);

	return READ_ONCE(space->changes);
}
