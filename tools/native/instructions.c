// SPDX-License-Identifier: GPL-2.0
/*
 * QEMU plugin: counts the instructions that the guest's kernel executes, by
 * translation block and by the class of code that the instructions serve.
 *
 * A program in the guest gives commands by executing MARKER with the address
 * of a text in rdi and its length in rsi:
 *
 *   clear                   forget all regions
 *   region CLASS FROM TO    code from FROM up to TO (hexadecimal) is of this class
 *   start                   reset the counts and start to count
 *   stop NAME               write the counts to the file NAME in the directory that
 *                           the plugin's argument out= specifies
 *
 * An instruction belongs to the innermost region that is active on its stack.  So
 * a region gets its own code and all functions that it calls, except functions that
 * enter another region.  When a region becomes active, the stack pointer is at the
 * return address.  The region ends when the stack pointer is above that address.
 * Each kernel stack has its own list of active regions.  So neither a task switch nor
 * an interrupt disturbs the list: an interrupt has its own stack and its own entry
 * region.
 *
 * A string instruction with a repeat prefix counts once, as on a real processor,
 * although the emulator may execute it once per element.
 *
 * For each translation block the plugin knows how many of its instructions are
 * atomic (see x86.h), and how many are fences.
 *
 * If MEMORY is defined, as in cache.c, this source also counts the cache lines that
 * the kernel reads, writes and executes for the class WATCHED (see lines.h).  The
 * following command starts a new call, in which each cache line is counted again:
 *
 *   call ADDRESS            the function at ADDRESS begins a new call
 *
 * Several virtual processors must execute in parallel (QEMU's option thread=multi).
 * If they execute in turn, QEMU 10.0 gives plugins a wrong processor number.  Each
 * processor has its own counts.  While one processor executes "start" or "stop", the
 * instructions of another processor may be counted or not.  With MEMORY there must be
 * only one processor.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lines.h"
#include "qemu.h"
#include "x86.h"

#ifndef MEMORY
#define MEMORY false
#endif

#define KERNEL 0xffff800000000000u
#define STACK_SHIFT 14		/* stacks of tasks and interrupts are aligned to 16 KiB */
#define CLASSES 9		/* class 0 is code that is in no region */
#define PROCESSORS (MEMORY ? 1 : 4)
#define WATCHED 1		/* the class whose cache lines are counted */
#define DEPTH 64
#define REGIONS 32
#define BUCKETS 65536
#define COMMAND_BYTES 256

/* The instruction nopl 0x74727078(%rax,%rax,1), which no compiler emits. */
static const uint8_t MARKER[8] = { 0x0f, 0x1f, 0x84, 0x00, 0x78, 0x70, 0x72, 0x74 };

struct region {
	uint64_t from, to;
	int class;
};

/*
 * A translation block. It is identified by address and length, because QEMU may
 * translate the same code again.
 */
struct block {
	struct block *next;
	uint64_t address, last;		/* addresses of the first and the last instruction */
	unsigned int instructions, atomics, fences;
	int class;
	uint64_t times[PROCESSORS][CLASSES];
};

/*
 * A kernel stack and its active regions. The innermost region is the last. Only one
 * processor at a time uses a stack.
 */
struct stack {
	struct stack *next;
	uint64_t number;
	uint64_t last;		/* address of the last instruction on this stack */
	int depth;
	struct {
		uint64_t pointer;
		int class;
	} entered[DEPTH];
};

int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static struct region regions[REGIONS];
static int region_count;
static struct block *blocks[BUCKETS];
static struct stack *stacks[BUCKETS];
/* Protects the regions, and the lists of blocks and stacks, which grow at their heads. */
static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static struct {
	struct stack *current;
	struct glib_array *buffer;
	uint64_t lost;
} processors[PROCESSORS];
static uint64_t call;
/*
 * Used with MEMORY: whether counting is on, the class that the present code serves,
 * and whether the present code itself belongs to the class WATCHED.
 */
static struct {
	bool on;
	int class;
	bool own;
} now;
static struct qemu_plugin_u64 counting;
static struct qemu_plugin_register *rsp, *rdi, *rsi;
static char directory[512];

static uint64_t read_register(unsigned int vcpu, struct qemu_plugin_register *handle)
{
	struct glib_array *buffer = processors[vcpu].buffer;
	uint64_t value = 0;

	g_byte_array_set_size(buffer, 0);
	if (qemu_plugin_read_register(handle, buffer) != sizeof(value)) {
		fputs("instructions: a register cannot be read\n", stderr);
		abort();
	}
	memcpy(&value, buffer->data, sizeof(value));
	return value;
}

static int class_of(uint64_t address)
{
	for (int i = 0; i < region_count; i++)
		if (address >= regions[i].from && address < regions[i].to)
			return regions[i].class;
	return 0;
}

static struct stack *find_stack(uint64_t number)
{
	struct stack **list = &stacks[number % BUCKETS], *stack;

	for (stack = __atomic_load_n(list, __ATOMIC_ACQUIRE); stack; stack = stack->next)
		if (stack->number == number)
			return stack;
	stack = must(calloc(1, sizeof(*stack)));
	stack->number = number;
	pthread_mutex_lock(&growing);
	stack->next = *list;
	__atomic_store_n(list, stack, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&growing);
	return stack;
}

static void execute(unsigned int vcpu, void *data)
{
	struct block *block = data;
	uint64_t pointer = read_register(vcpu, rsp);
	struct stack *stack = processors[vcpu].current;
	int class;

	if (!stack || stack->number != pointer >> STACK_SHIFT)
		stack = find_stack(pointer >> STACK_SHIFT);
	processors[vcpu].current = stack;
	while (stack->depth && pointer > stack->entered[stack->depth - 1].pointer)
		stack->depth--;
	class = stack->depth ? stack->entered[stack->depth - 1].class : 0;
	if (block->class && block->class != class) {
		if (stack->depth < DEPTH) {
			class = block->class;
			stack->entered[stack->depth].pointer = pointer;
			stack->entered[stack->depth++].class = class;
		} else {
			processors[vcpu].lost++;
		}
	}
	/*
	 * If a block of a single instruction is executed twice in succession, the
	 * instruction is a string instruction that repeats itself. The second
	 * execution is not counted.
	 */
	if (block->instructions > 1 || block->last != stack->last)
		block->times[vcpu][class]++;
	stack->last = block->last;
	if (MEMORY) {
		if (block->address == call)
			lines_new_call();
		now.class = class;
		now.own = block->class == WATCHED;
		lines_fetch(block->address, block->last, class == WATCHED, now.own);
	}
}

static void access_memory(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
			  void *data)
{
	struct stack *current = processors[vcpu].current;

	(void)data;
	if (now.on)
		lines_access(address, 1u << qemu_plugin_mem_size_shift(info),
			     qemu_plugin_mem_is_store(info),
			     current && current->number == address >> STACK_SHIFT,
			     now.class == WATCHED, now.own);
}

static void forget_counts(void)
{
	for (int i = 0; i < BUCKETS; i++) {
		for (struct block *block = blocks[i]; block; block = block->next)
			memset(block->times, 0, sizeof(block->times));
		for (struct stack *stack = stacks[i]; stack; stack = stack->next) {
			stack->depth = 0;
			stack->last = 0;
		}
	}
	for (int vcpu = 0; vcpu < PROCESSORS; vcpu++)
		processors[vcpu].lost = 0;
	lines_clear();
}

static void classify_again(void)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct block *block = blocks[i]; block; block = block->next)
			block->class = class_of(block->address);
}

/*
 * Writes the counts to a file:
 *
 * - a line for each translation block and class: the address, the number of
 *   instructions, of atomics and of fences, the class, and how many times the block
 *   was executed
 * - if MEMORY is set, a line "lines" for each count of lines.h
 * - the last line, "end": how many times a region was not entered, because the list
 *   of active regions of a stack was full
 */
static bool write_counts(const char *name)
{
	char path[sizeof(directory) + COMMAND_BYTES];
	uint64_t lost = 0;
	bool good;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	if (!file)
		return false;
	for (int i = 0; i < BUCKETS; i++)
		for (struct block *block = blocks[i]; block; block = block->next)
			for (int class = 0; class < CLASSES; class++) {
				uint64_t times = 0;

				for (int vcpu = 0; vcpu < PROCESSORS; vcpu++)
					times += block->times[vcpu][class];
				if (times)
					fprintf(file, "%lx %u %u %u %d %lu\n",
						block->address, block->instructions,
						block->atomics, block->fences, class, times);
			}
	for (int vcpu = 0; vcpu < PROCESSORS; vcpu++)
		lost += processors[vcpu].lost;
	if (MEMORY)
		lines_write(file);
	fprintf(file, "end %lu\n", lost);
	good = !ferror(file);
	return fclose(file) == 0 && good;
}

static void count_all(bool on)
{
	for (int vcpu = 0; vcpu < PROCESSORS; vcpu++)
		if (processors[vcpu].buffer)
			qemu_plugin_u64_set(counting, vcpu, on);
}

static bool obey(const char *text)
{
	struct region region;
	char name[64];

	if (!strcmp(text, "clear")) {
		region_count = 0;
	} else if (sscanf(text, "region %d %lx %lx",
			  &region.class, &region.from, &region.to) == 3) {
		if (region_count == REGIONS || region.class < 1 || region.class >= CLASSES)
			return false;
		regions[region_count++] = region;
		classify_again();
	} else if (sscanf(text, "call %lx", &call) == 1) {
		return MEMORY;
	} else if (!strcmp(text, "start")) {
		forget_counts();
		now.on = true;
		count_all(true);
	} else if (sscanf(text, "stop %63[A-Za-z0-9.-]", name) == 1) {
		count_all(false);
		now.on = false;
		return write_counts(name);
	} else {
		return false;
	}
	return true;
}

static void listen(unsigned int vcpu, void *data)
{
	uint64_t address = read_register(vcpu, rdi), length = read_register(vcpu, rsi);
	struct glib_array *buffer = processors[vcpu].buffer;
	char text[COMMAND_BYTES];

	(void)data;
	if (length >= sizeof(text))
		length = 0;
	g_byte_array_set_size(buffer, 0);
	if (!length || !qemu_plugin_read_memory_vaddr(address, buffer, length)) {
		fputs("instructions: a command cannot be read\n", stderr);
		return;
	}
	memcpy(text, buffer->data, length);
	text[length] = 0;
	pthread_mutex_lock(&growing);
	if (!obey(text))
		fprintf(stderr, "instructions: bad command, or no file: %s\n", text);
	pthread_mutex_unlock(&growing);
}

static struct block *find_block(uint64_t address, unsigned int instructions, uint64_t last)
{
	struct block **list = &blocks[(address ^ address >> 16) % BUCKETS], *block;

	pthread_mutex_lock(&growing);
	for (block = *list; block; block = block->next)
		if (block->address == address && block->instructions == instructions &&
		    block->last == last)
			goto found;
	block = must(calloc(1, sizeof(*block)));
	block->address = address;
	block->instructions = instructions;
	block->last = last;
	block->class = class_of(address);
	block->next = *list;
	*list = block;
found:
	pthread_mutex_unlock(&growing);
	return block;
}

static void translate(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t instructions = qemu_plugin_tb_n_insns(tb);
	uint8_t code[X86_BYTES];

	(void)id;
	if (address >= KERNEL) {
		struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, instructions - 1);
		struct block *block = find_block(address, instructions,
						 qemu_plugin_insn_vaddr(last));
		unsigned int atomics = 0, fences = 0;

		for (size_t i = 0; i < instructions; i++) {
			struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
			size_t length = qemu_plugin_insn_data(insn, code, sizeof(code));
			enum x86_order order = x86_order(code, length);

			atomics += order == X86_ATOMIC;
			fences += order == X86_FENCE;
			if (MEMORY)
				qemu_plugin_register_vcpu_mem_cb(insn, access_memory,
								 QEMU_PLUGIN_CB_NO_REGS,
								 QEMU_PLUGIN_MEM_RW, NULL);
		}
		block->atomics = atomics;
		block->fences = fences;
		qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, execute, QEMU_PLUGIN_CB_R_REGS,
							  QEMU_PLUGIN_COND_NE, counting, 0, block);
		return;
	}
	for (size_t i = 0; i < instructions; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (qemu_plugin_insn_data(insn, code, sizeof(code)) == sizeof(MARKER) &&
		    !memcmp(code, MARKER, sizeof(MARKER)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, listen,
							       QEMU_PLUGIN_CB_R_REGS, NULL);
	}
}

static void find_registers(uint64_t id, unsigned int vcpu)
{
	struct glib_array *all = qemu_plugin_get_registers();
	struct qemu_plugin_reg_descriptor *found = all->data;

	(void)id;
	for (unsigned int i = 0; i < all->len; i++) {
		if (!strcmp(found[i].name, "rsp"))
			rsp = found[i].handle;
		else if (!strcmp(found[i].name, "rdi"))
			rdi = found[i].handle;
		else if (!strcmp(found[i].name, "rsi"))
			rsi = found[i].handle;
	}
	if (vcpu >= PROCESSORS || !rsp || !rdi || !rsi) {
		fputs("instructions: too many processors, or not x86-64\n", stderr);
		abort();
	}
	processors[vcpu].buffer = g_byte_array_new();
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || sscanf(argv[0], "out=%511s", directory) != 1) {
		fputs("instructions: give out=DIRECTORY\n", stderr);
		return -1;
	}
	if (MEMORY)
		lines_prepare();
	counting.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	qemu_plugin_register_vcpu_init_cb(id, find_registers);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
	return 0;
}
