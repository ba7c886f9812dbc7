/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counts the cache lines that a call touches, and the misses of a simulated cache.
 *
 * There are two counts of everything: "served" includes the watched code and all
 * code that it calls, and "own" includes the watched code alone.  A cache line counts
 * once for each call.  A call ends when the next call begins, even if the two calls
 * overlap.  So the counts are the cost of a call while many calls are in flight.
 * Cache lines of the running kernel stack are counted separately, because they are
 * hot.
 *
 * The simulated processor has a cache for data and a cache for code, of 32 KiB and
 * eight ways each.  Behind both is a cache of 1 MiB and sixteen ways.  A cache
 * evicts the least recently used line.  Virtual addresses of the kernel replace
 * physical ones.  User mode, devices and prefetching are left out.
 */
#ifndef LAB_PLUGIN_LINES_H
#define LAB_PLUGIN_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_SHIFT 6
#define LINE_SLOTS 1048576	/* more lines than one measurement touches */

enum line_use {
	LINE_CODE,
	LINE_DATA,
	LINE_WRITTEN,
	LINE_STACK,
	LINE_MISSED_CODE,	/* This and the next two counters count every miss. */
	LINE_MISSED_DATA,
	LINE_MISSED_BOTH,
	LINE_USES,
};

enum line_who {
	LINE_SERVED,
	LINE_OWN,
	LINE_WHOS,
};

static const char *const line_names[LINE_WHOS][LINE_USES] = {
	{ "code", "data", "written", "stack", "l1i", "l1d", "l2" },
	{ "own-code", "own-data", "own-written", "own-stack", "own-l1i", "own-l1d", "own-l2" },
};

struct line {
	uint64_t number;
	uint64_t seen[LINE_WHOS][LINE_MISSED_CODE];	/* the last call that touched the line */
};

#define CACHE_WAYS 16

struct cache {
	unsigned int sets, ways;
	uint64_t (*tags)[CACHE_WAYS];	/* lines in each set, most recently used line first */
};

static struct line *lines;
static unsigned int lines_used;
static uint64_t line_call;
static uint64_t line_counts[LINE_WHOS][LINE_USES];
static struct cache code_cache, data_cache, second_cache;

static void *must(void *memory)
{
	if (!memory) {
		fputs("instructions: out of memory\n", stderr);
		abort();
	}
	return memory;
}

static void cache_prepare(struct cache *cache, unsigned int bytes, unsigned int ways)
{
	cache->ways = ways;
	cache->sets = (bytes >> LINE_SHIFT) / ways;
	cache->tags = must(calloc(cache->sets, sizeof(*cache->tags)));
}

static void lines_prepare(void)
{
	lines = must(calloc(LINE_SLOTS, sizeof(*lines)));
	cache_prepare(&code_cache, 32 << 10, 8);
	cache_prepare(&data_cache, 32 << 10, 8);
	cache_prepare(&second_cache, 1 << 20, 16);
}

/* Resets the counts.  The caches stay warm. */
static void lines_clear(void)
{
	memset(line_counts, 0, sizeof(line_counts));
	line_call++;
}

static void lines_new_call(void)
{
	line_call++;
}

static struct line *find_line(uint64_t number)
{
	unsigned int slot = (number ^ number >> 20) % LINE_SLOTS;

	while (lines[slot].number && lines[slot].number != number)
		slot = (slot + 1) % LINE_SLOTS;
	if (!lines[slot].number) {
		if (++lines_used > LINE_SLOTS / 2) {
			fputs("instructions: too many lines\n", stderr);
			abort();
		}
		lines[slot].number = number;
	}
	return &lines[slot];
}

/* Returns whether a cache line was in the cache, and puts the line there. */
static bool cache_hit(struct cache *cache, uint64_t number)
{
	uint64_t *set = cache->tags[number % cache->sets];
	unsigned int way = 0;
	bool hit;

	while (way < cache->ways - 1 && set[way] != number)
		way++;
	hit = set[way] == number;
	memmove(&set[1], &set[0], way * sizeof(*set));
	set[0] = number;
	return hit;
}

static void line_use(uint64_t number, enum line_use use, enum line_who who)
{
	uint64_t *seen = &find_line(number)->seen[who][use];

	if (*seen != line_call) {
		*seen = line_call;
		line_counts[who][use]++;
	}
}

static void line_miss(enum line_use use, bool served, bool own)
{
	line_counts[LINE_SERVED][use] += served;
	line_counts[LINE_OWN][use] += own;
}

/* Looks for one cache line in the caches, and counts misses. */
static void line_pass(uint64_t number, struct cache *first, enum line_use missed, bool served,
		      bool own)
{
	if (cache_hit(first, number))
		return;
	line_miss(missed, served, own);
	if (!cache_hit(&second_cache, number))
		line_miss(LINE_MISSED_BOTH, served, own);
}

/* Counts the cache lines that contain the code bytes from `from` to `to`. */
static void lines_fetch(uint64_t from, uint64_t to, bool served, bool own)
{
	for (uint64_t number = from >> LINE_SHIFT; number <= to >> LINE_SHIFT; number++) {
		line_pass(number, &code_cache, LINE_MISSED_CODE, served, own);
		if (served)
			line_use(number, LINE_CODE, LINE_SERVED);
		if (own)
			line_use(number, LINE_CODE, LINE_OWN);
	}
}

/* Counts an access to memory. `stack` says whether the memory is in the running stack. */
static void lines_access(uint64_t address, unsigned int bytes, bool store, bool stack, bool served,
			 bool own)
{
	uint64_t last = (address + bytes - 1) >> LINE_SHIFT;

	for (uint64_t number = address >> LINE_SHIFT; number <= last; number++) {
		line_pass(number, &data_cache, LINE_MISSED_DATA, served, own);
		for (enum line_who who = 0; who < LINE_WHOS; who++) {
			if (!(who == LINE_OWN ? own : served))
				continue;
			line_use(number, stack ? LINE_STACK : LINE_DATA, who);
			if (store && !stack)
				line_use(number, LINE_WRITTEN, who);
		}
	}
}

static void lines_write(FILE *file)
{
	for (enum line_who who = 0; who < LINE_WHOS; who++)
		for (enum line_use use = 0; use < LINE_USES; use++)
			fprintf(file, "lines %s %lu\n", line_names[who][use],
				line_counts[who][use]);
}

#endif
