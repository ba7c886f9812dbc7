// SPDX-License-Identifier: GPL-2.0
/*
 * A library for Python programs in the client machine. Its functions repeat
 * system calls in a loop, so that the calls can be timed. A loop in Python
 * would add its own time.
 *
 * Every function executes its operation `count` times. It returns the duration
 * in nanoseconds, or a negative errno.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096
#define DEPTH_MOST 1024
#define THREADS_MOST 64

/*
 * Describes transfers of `size` bytes each. They use the files `fds` in turn, and
 * `depth` transfers are in progress at a time.
 */
struct transfers {
	const int *fds;
	long fd_count, size, area, depth;	/* area: number of bytes used in each file */
	/* writes: the transfers are writes; random: the offsets are random */
	long writes, random;
};

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

EXPORT int64_t load_getattr(const char *path, long count)
{
	int64_t start = now();
	struct statx found;

	while (count--)
		if (statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &found))
			return -errno;
	return now() - start;
}

/*
 * Calls `work` for each of `count` names. A name consists of `path` and a number, and the
 * numbers begin with `first`. `work` returns 0 or a negative errno.
 */
static int64_t with_names(const char *path, long first, long count, int (*work)(const char *name))
{
	int64_t start = now();
	char name[PAGE];

	for (long i = first; i < first + count; i++) {
		int problem;

		snprintf(name, sizeof(name), "%s%ld", path, i);
		problem = work(name);
		if (problem)
			return problem;
	}
	return now() - start;
}

/* Looks up a name that does not exist, so that the client must ask the server. */
static int look_up(const char *name)
{
	struct stat found;

	return !stat(name, &found) || errno != ENOENT ? -EEXIST : 0;
}

static int create(const char *name)
{
	int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);

	return fd < 0 || close(fd) ? -errno : 0;
}

static int remove_name(const char *name)
{
	return unlink(name) ? -errno : 0;
}

EXPORT int64_t load_lookup(const char *path, long first, long count)
{
	return with_names(path, first, count, look_up);
}

EXPORT int64_t load_create(const char *path, long first, long count)
{
	return with_names(path, first, count, create);
}

EXPORT int64_t load_unlink(const char *path, long first, long count)
{
	return with_names(path, first, count, remove_name);
}

/*
 * Reads a directory once. The directory must have `count` entries, including
 * "." and "..".
 */
EXPORT int64_t load_readdir(const char *path, long count)
{
	int64_t start = now();
	DIR *directory = opendir(path);

	if (!directory)
		return -errno;
	while (readdir(directory))
		count--;
	closedir(directory);
	return count ? -EIO : now() - start;
}

/*
 * Reads or writes a file through the page cache, beginning with the first byte.
 * Written data are on the server when the function returns.
 */
EXPORT int64_t load_buffered(int fd, long size, long writes, long count)
{
	char *page = aligned_alloc(PAGE, size);
	int64_t start, took;

	if (!page)
		return -ENOMEM;
	memset(page, 0x5a, size);
	start = now();
	for (long i = 0; i < count; i++) {
		ssize_t done = writes ? pwrite(fd, page, size, i * size) :
			pread(fd, page, size, i * size);

		if (done != size) {
			free(page);
			return done < 0 ? -errno : -EIO;
		}
	}
	if (writes && fsync(fd)) {
		free(page);
		return -errno;
	}
	took = now() - start;
	free(page);
	return took;
}

static void prepare(struct iocb *block, const struct transfers *wanted, long number, void *memory)
{
	long places = wanted->area / wanted->size;
	uint64_t place = number / wanted->fd_count;

	if (wanted->random)	/* random offsets, but the same in every run */
		place = (number + 1) * 0x9e3779b97f4a7c15u >> 33;
	memset(block, 0, sizeof(*block));
	block->aio_lio_opcode = wanted->writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
	block->aio_fildes = wanted->fds[number % wanted->fd_count];
	block->aio_buf = (uintptr_t)memory;
	block->aio_nbytes = wanted->size;
	block->aio_offset = place % places * wanted->size;
}

static int64_t keep_going(aio_context_t context, const struct transfers *wanted, long count,
			  char *memory)
{
	static struct iocb blocks[DEPTH_MOST];
	static struct iocb *ready[DEPTH_MOST];
	static struct io_event events[DEPTH_MOST];
	long started = 0, finished = 0, waiting = 0;
	int64_t start = now();

	while (waiting < wanted->depth && waiting < count) {
		prepare(&blocks[waiting], wanted, started++, memory + waiting * wanted->size);
		ready[waiting] = &blocks[waiting];
		waiting++;
	}
	while (finished < count) {
		long done, sent = 0;

		while (sent < waiting) {
			long taken = syscall(SYS_io_submit, context, waiting - sent, ready + sent);

			if (taken < 0)
				return -errno;
			sent += taken;
		}
		waiting = 0;
		done = syscall(SYS_io_getevents, context, 1l, DEPTH_MOST, events, NULL);
		if (done < 0)
			return -errno;
		for (long i = 0; i < done; i++) {
			struct iocb *block = (struct iocb *)(uintptr_t)events[i].obj;
			long slot = block - blocks;

			if (events[i].res != wanted->size)
				return events[i].res < 0 ? events[i].res : -EIO;
			finished++;
			if (started == count)
				continue;
			prepare(block, wanted, started++, memory + slot * wanted->size);
			ready[waiting++] = block;
		}
	}
	return now() - start;
}

/* The files must be open for direct I/O, because only then are transfers asynchronous. */
EXPORT int64_t load_transfer(const struct transfers *wanted, long count)
{
	aio_context_t context = 0;
	int64_t took;
	char *memory;

	if (wanted->depth < 1 || wanted->depth > DEPTH_MOST)
		return -EINVAL;
	memory = aligned_alloc(PAGE, wanted->depth * wanted->size);
	if (!memory)
		return -ENOMEM;
	memset(memory, 0x5a, wanted->depth * wanted->size);
	if (syscall(SYS_io_setup, DEPTH_MOST, &context)) {
		free(memory);
		return -errno;
	}
	took = keep_going(context, wanted, count, memory);
	/* This call waits for transfers in flight. */
	syscall(SYS_io_destroy, context);
	free(memory);
	return took;
}

/*
 * Threads that are created before the measurement and wait for work, so that their
 * creation is not measured.
 */
struct crew {
	const struct transfers *wanted;
	long count, depth;
	pthread_barrier_t begin, end;
	struct worker {
		struct crew *crew;
		long first;
		int64_t problem;
	} workers[THREADS_MOST];
};

/*
 * Makes the transfers of one thread, one after the other: the transfer `first`, and then
 * every `depth`-th transfer.
 */
static int64_t work(const struct crew *crew, long first)
{
	const struct transfers *wanted = crew->wanted;
	char *memory = aligned_alloc(PAGE, wanted->size);
	int64_t problem = 0;

	if (!memory)
		return -ENOMEM;
	memset(memory, 0x5a, wanted->size);
	for (long i = first; i < crew->count && !problem; i += crew->depth) {
		struct iocb block;
		ssize_t done;

		prepare(&block, wanted, i, memory);
		done = wanted->writes ?
			pwrite(block.aio_fildes, memory, wanted->size, block.aio_offset) :
			pread(block.aio_fildes, memory, wanted->size, block.aio_offset);
		if (done != wanted->size)
			problem = done < 0 ? -errno : -EIO;
	}
	free(memory);
	return problem;
}

static void *live(void *data)
{
	struct worker *worker = data;

	for (;;) {
		pthread_barrier_wait(&worker->crew->begin);
		worker->problem = work(worker->crew, worker->first);
		pthread_barrier_wait(&worker->crew->end);
	}
	return NULL;
}

/*
 * Creates a crew and its threads. Returns the crew, or NULL on failure. If only
 * some of the threads could be created, the created threads are not ended.
 */
static struct crew *make_crew(long depth)
{
	struct crew *crew = calloc(1, sizeof(*crew));

	if (!crew || pthread_barrier_init(&crew->begin, NULL, depth + 1) ||
	    pthread_barrier_init(&crew->end, NULL, depth + 1))
		return NULL;
	crew->depth = depth;
	for (long i = 0; i < depth; i++) {
		pthread_t thread;

		crew->workers[i].crew = crew;
		crew->workers[i].first = i;
		if (pthread_create(&thread, NULL, live, &crew->workers[i]))
			return NULL;
	}
	return crew;
}

/*
 * Makes transfers in `depth` threads. Each thread waits for the end of a transfer before it
 * begins the next transfer.
 */
EXPORT int64_t load_threads(const struct transfers *wanted, long count)
{
	static struct crew *crews[THREADS_MOST + 1];
	struct crew *crew;
	int64_t start;

	if (wanted->depth < 1 || wanted->depth > THREADS_MOST)
		return -EINVAL;
	if (!crews[wanted->depth])
		crews[wanted->depth] = make_crew(wanted->depth);
	crew = crews[wanted->depth];
	if (!crew)
		return -EAGAIN;
	crew->wanted = wanted;
	crew->count = count;
	start = now();
	pthread_barrier_wait(&crew->begin);
	pthread_barrier_wait(&crew->end);
	for (long i = 0; i < crew->depth; i++)
		if (crew->workers[i].problem)
			return crew->workers[i].problem;
	return now() - start;
}
