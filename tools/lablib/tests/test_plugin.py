# SPDX-License-Identifier: GPL-2.0
"""Tests the parts of the plugin for QEMU that work without QEMU: they find atomic instructions, and
count the cache lines that a call touches."""

import pathlib
import subprocess
import tempfile
import unittest

NATIVE = pathlib.Path(__file__).resolve().parents[2] / "native"
COMPILE_SECONDS = 60

ORDERS = r"""
#include <stdio.h>
#include "x86.h"
int main(void)
{
	unsigned int byte;
	uint8_t code[X86_BYTES];
	size_t length = 0;
	int end;

	while ((end = getchar()) != EOF) {
		if (end == '\n') {
			printf("%d\n", x86_order(code, length));
			length = 0;
		} else if (end != ' ') {
			ungetc(end, stdin);
			if (scanf("%2x", &byte) != 1 || length == sizeof(code))
				return 1;
			code[length++] = byte;
		}
	}
	return 0;
}
"""
# The source of a program that reads pairs of a letter and an address. "A" means an access, "S" a
# store, "s" a store on the stack, "a" an access by called code, "F" the fetch of an instruction,
# and "N" the beginning of the next call.
LINES = r"""
#include "lines.h"
int main(void)
{
	unsigned long address;
	char what;

	lines_prepare();
	lines_clear();
	while (scanf(" %c%lx", &what, &address) == 2) {
		if (what == 'F')
			lines_fetch(address, address + 1, true, true);
		else if (what == 'N')
			lines_new_call();
		else
			lines_access(address, 8, what == 'S', what == 's', true, what != 'a');
	}
	lines_write(stdout);
	return 0;
}
"""
# The source of a program that simulates four processors. Each processor has its own stack, and all
# processors execute the same two blocks of instructions. Only the second block is in a region. The
# functions at the beginning replace functions of QEMU.
BESIDE = r"""
#include "instructions.c"
#define TIMES 200000
static _Thread_local uint64_t pointer;
static struct glib_array array;
struct glib_array *g_byte_array_new(void) { return calloc(1, sizeof(array) + 64); }
struct glib_array *g_byte_array_set_size(struct glib_array *of, unsigned int length)
{
	of->data = of + 1;
	of->len = length;
	return of;
}
int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct glib_array *to)
{
	(void)handle;
	memcpy(to->data, &pointer, sizeof(pointer));
	return sizeof(pointer);
}
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size) { return calloc(1, size); }
void qemu_plugin_u64_set(struct qemu_plugin_u64 entry, unsigned int vcpu, uint64_t value)
{ (void)entry; (void)vcpu; (void)value; }
void qemu_plugin_register_vcpu_init_cb(uint64_t id, void (*cb)(uint64_t, unsigned int))
{ (void)id; (void)cb; }
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
	void (*cb)(uint64_t, struct qemu_plugin_tb *))
{ (void)id; (void)cb; }
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb,
	void (*cb)(unsigned int, void *), enum qemu_plugin_cb_flags flags,
	enum qemu_plugin_cond cond, struct qemu_plugin_u64 entry, uint64_t value, void *data)
{ (void)tb; (void)cb; (void)flags; (void)cond; (void)entry; (void)value; (void)data; }
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
	void (*cb)(unsigned int, void *), enum qemu_plugin_cb_flags flags, void *data)
{ (void)insn; (void)cb; (void)flags; (void)data; }
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
	void (*cb)(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *),
	enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw, void *data)
{ (void)insn; (void)cb; (void)flags; (void)rw; (void)data; }
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info) { return info; }
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info) { return info; }
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb) { return !tb; }
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb) { return !tb; }
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index)
{ (void)tb; (void)index; return NULL; }
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn) { return !insn; }
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to, size_t length)
{ (void)insn; (void)to; return length; }
struct glib_array *qemu_plugin_get_registers(void) { return &array; }
bool qemu_plugin_read_memory_vaddr(uint64_t address, struct glib_array *to, size_t length)
{ (void)address; (void)to; return length; }

static void *processor(void *data)
{
	unsigned int vcpu = (uintptr_t)data;

	for (int i = 0; i < TIMES; i++) {
		/* Ever new stacks for the list of them to grow. */
		pointer = ((uint64_t)(i / 16 * PROCESSORS + vcpu) << STACK_SHIFT) + 4096;
		execute(vcpu, find_block(KERNEL + 100, 3, KERNEL + 110));
		pointer -= 8;
		execute(vcpu, find_block(KERNEL + 200, 5, KERNEL + 220));
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[PROCESSORS];

	strcpy(directory, "/proc/self/fd");
	if (!obey("region 5 ffff8000000000c8 ffff8000000000d0") || !obey("start"))
		return 1;
	for (uintptr_t i = 0; i < PROCESSORS; i++) {
		processors[i].buffer = g_byte_array_new();
		pthread_create(&threads[i], NULL, processor, (void *)i);
	}
	for (int i = 0; i < PROCESSORS; i++)
		pthread_join(threads[i], NULL);
	return !obey("stop 1");
}
"""


class Compiled(unittest.TestCase):
    def run_program(self, source, text):
        """Compiles a program, and runs it with this text as input. Returns the output."""
        with tempfile.TemporaryDirectory() as where:
            program = pathlib.Path(where) / "program"
            subprocess.run(["cc", "-Wall", "-Werror", "-pthread", f"-I{NATIVE}", "-x", "c", "-",
                            "-o", program], input=source, text=True, check=True,
                           timeout=COMPILE_SECONDS)
            return subprocess.run([program], input=text, text=True, check=True, timeout=10,
                                  stdout=subprocess.PIPE).stdout


class Orders(Compiled):
    """Checks the class of instructions. The bytes of each instruction come from an assembler."""

    CASES = (
        ("f0 48 0f b1 0a", 1),         # lock cmpxchg %rcx,(%rdx)
        ("48 0f b1 0a", 0),            # cmpxchg %rcx,(%rdx)
        ("65 48 0f b1 0a", 0),         # cmpxchg %rcx,%gs:(%rdx)
        ("f0 ff 0f", 1),               # lock decl (%rdi)
        ("87 07", 1),                  # xchg %eax,(%rdi)
        ("48 87 07", 1),               # xchg %rax,(%rdi)
        ("66 87 07", 1),               # xchg %ax,(%rdi)
        ("87 c8", 0),                  # xchg %ecx,%eax
        ("66 90", 0),                  # nop
        ("f0 83 44 24 fc 00", 2),      # lock addl $0,-4(%rsp)
        ("f0 83 04 24 00", 2),         # lock addl $0,(%rsp)
        ("f0 83 44 24 fc 01", 1),      # lock addl $1,-4(%rsp)
        ("0f ae f0", 2), ("0f ae e8", 2), ("0f ae f8", 2),
        ("0f ae 00", 0),               # fxsave (%rax)
        # This is the first instruction of the list, with the prefix 3e in place of the lock prefix.
        # The kernel makes this replacement if there is only one processor.
        ("3e 48 0f b1 0a", 0),
        ("c3", 0),
    )

    def test_of_each(self):
        said = self.run_program(ORDERS, "".join(f"{code}\n" for code, _ in self.CASES))
        self.assertEqual(dict(zip((code for code, _ in self.CASES), map(int, said.split()),
                                  strict=True)), dict(self.CASES))


class Lines(Compiled):
    def counts(self, text):
        lines = self.run_program(LINES, text).splitlines()
        return {name: int(number) for _, name, number in map(str.split, lines)}

    def test_a_line_counts_once_for_each_call(self):
        found = self.counts("A1000 A1008 S1010 A1040 N0 A1000")
        self.assertEqual((found["data"], found["written"], found["own-data"]), (3, 1, 3))

    def test_an_access_may_touch_two_lines(self):
        self.assertEqual(self.counts("S103c")["written"], 2)

    def test_the_stack_and_code_are_apart(self):
        found = self.counts("s1000 F2000 F2001")
        self.assertEqual((found["stack"], found["data"], found["code"]), (1, 0, 1))

    def test_what_others_do_for_it_is_not_its_own(self):
        found = self.counts("a1000")
        self.assertEqual((found["data"], found["own-data"]), (1, 0))

    def test_a_set_has_eight_ways_and_forgets_what_was_used_longest_ago(self):
        nine = [f"A{0x100000 + 4096 * way:x}" for way in range(9)]
        self.assertEqual(self.counts(" ".join(nine[:8] * 2))["l1d"], 8)
        self.assertEqual(self.counts(" ".join(nine * 2))["l1d"], 18)
        # The first of nine cache lines is used again before the ninth line is used. So the second
        # line is the least recently used one, and is evicted.
        again = [*nine[:8], nine[0], nine[8], nine[0], nine[1]]
        found = self.counts(" ".join(again))
        self.assertEqual((found["l1d"], found["l2"]), (10, 9))


class Beside(Compiled):
    def test_what_processors_count_beside_each_other_adds_up(self):
        found = [line.split() for line in self.run_program(BESIDE, "").splitlines()]
        self.assertEqual(sorted(found), [
            ["end", "0"],
            ["ffff800000000064", "3", "0", "0", "0", str(4 * 200_000)],
            ["ffff8000000000c8", "5", "0", "0", "5", str(4 * 200_000)]])


if __name__ == "__main__":
    unittest.main()
