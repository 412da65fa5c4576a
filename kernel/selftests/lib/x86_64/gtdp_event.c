// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events of a handle, and numbers that the kernel tells in files.
 */
#include <poll.h>

#include "gtdp_bed.h"

/* Reads what is there, up to max events, and waits for nothing. */
int gtdp_events(int fd, struct kvm_gtdp_event *events, int max)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	int flags = fcntl(fd, F_GETFL), nr = 0;
	ssize_t n;

	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	while (nr < max) {
		TEST_ASSERT(poll(&pfd, 1, 0) >= 0, "poll() failed: %i", errno);
		n = read(fd, events + nr, (max - nr) * sizeof(*events));
		if (n < 0 && errno == EAGAIN) {
			TEST_ASSERT(!(pfd.revents & POLLIN),
				    "POLLIN, but nothing to read");
			break;
		}
		if (!n)
			break;
		TEST_ASSERT(n > 0 && !(n % sizeof(*events)),
			    "read() returned %zi, errno: %i", n, errno);
		nr += n / sizeof(*events);
	}
	fcntl(fd, F_SETFL, flags);
	return nr;
}

void gtdp_drain_events(int fd)
{
	struct kvm_gtdp_event events[16];

	while (gtdp_events(fd, events, ARRAY_SIZE(events)))
		;
}

/* The first number of a file that scanf() finds by @format, or -1. */
u64 gtdp_find_number(const char *path, const char *format)
{
	char line[256];
	u64 value = -1ull;
	FILE *file = fopen(path, "re");

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, format, &value) == 1)
			break;
	}
	if (file)
		fclose(file);
	return value;
}

/* Of /proc/vmstat; -1 if there is none of this name. */
u64 gtdp_vmstat(const char *name)
{
	char format[80];

	snprintf(format, sizeof(format), "%s %%lu", name);
	return gtdp_find_number("/proc/vmstat", format);
}

/* The number that a file starts with, or -1. */
u64 gtdp_read_number(const char *path)
{
	return gtdp_find_number(path, "%lu");
}

/* In bytes. */
u64 gtdp_swap_free(void)
{
	return gtdp_find_number("/proc/meminfo", "SwapFree: %lu kB") * SZ_1K;
}

/* Returns 0 or a negative errno. */
int gtdp_write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n = strlen(text);
	int ret = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, n) != n)
		ret = -errno;
	close(fd);
	return ret;
}
