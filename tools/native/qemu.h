/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of QEMU's plugin interface (version 4, QEMU 9.2 and later) that
 * instructions.c uses.  No package of the distribution contains QEMU's own header.
 * QEMU refuses to load a plugin for a version that it no longer supports.
 */
#ifndef LAB_PLUGIN_QEMU_H
#define LAB_PLUGIN_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QEMU_PLUGIN_VERSION 4
#define QEMU_PLUGIN_EXPORT __attribute__((visibility("default")))

struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_register;
struct qemu_plugin_scoreboard;

enum qemu_plugin_cb_flags {
	QEMU_PLUGIN_CB_NO_REGS,
	QEMU_PLUGIN_CB_R_REGS,
	QEMU_PLUGIN_CB_RW_REGS,
};

enum qemu_plugin_cond {
	QEMU_PLUGIN_COND_NEVER,
	QEMU_PLUGIN_COND_ALWAYS,
	QEMU_PLUGIN_COND_EQ,
	QEMU_PLUGIN_COND_NE,
};

enum qemu_plugin_mem_rw {
	QEMU_PLUGIN_MEM_R = 1,
	QEMU_PLUGIN_MEM_W,
	QEMU_PLUGIN_MEM_RW,
};

typedef uint32_t qemu_plugin_meminfo_t;

/*
 * One number for each virtual processor. The scoreboard `score` has an element for
 * each virtual processor. The number is at `offset` in this element.
 */
struct qemu_plugin_u64 {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};

struct qemu_plugin_reg_descriptor {
	struct qemu_plugin_register *handle;
	const char *name;
	const char *feature;
};

/* The public members of GLib's GArray and GByteArray. */
struct glib_array {
	void *data;
	unsigned int len;
};

struct glib_array *g_byte_array_new(void);
struct glib_array *g_byte_array_set_size(struct glib_array *array, unsigned int length);

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
void qemu_plugin_u64_set(struct qemu_plugin_u64 entry, unsigned int vcpu, uint64_t value);

void qemu_plugin_register_vcpu_init_cb(uint64_t id,
				       void (*cb)(uint64_t id, unsigned int vcpu));
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
					   void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb,
					       void (*cb)(unsigned int vcpu, void *data),
					       enum qemu_plugin_cb_flags flags,
					       enum qemu_plugin_cond cond,
					       struct qemu_plugin_u64 entry, uint64_t value,
					       void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int vcpu, void *data),
					    enum qemu_plugin_cb_flags flags, void *data);

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      void (*cb)(unsigned int vcpu, qemu_plugin_meminfo_t info,
						 uint64_t address, void *data),
				      enum qemu_plugin_cb_flags flags,
				      enum qemu_plugin_mem_rw rw, void *data);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length);

struct glib_array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct glib_array *to);
bool qemu_plugin_read_memory_vaddr(uint64_t address, struct glib_array *to, size_t length);

QEMU_PLUGIN_EXPORT extern int qemu_plugin_version;
QEMU_PLUGIN_EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
					   char **argv);

#endif
