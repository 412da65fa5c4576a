// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what /dev/kvm-gtdp and its handles say to bad input: each field of each call
 * is made wrong, one at a time, in a call that is known to be good otherwise.
 * Nothing may be built, pinned, written back or logged for it.
 */
#include "gtdp_call.h"
#include "gtdp_chaos.h"

#define GPA	GTDP_TEST_GPA
#define SIZE	GTDP_CALL_SIZE

static struct gtdp_call_vm t;

enum field {
	ATTACH_VM_FD,
	ATTACH_RESERVED0,
	ATTACH_RESERVED1,
	ATTACH_RESERVED2,
	SLOTS_COUNT,
	SLOTS_RESERVED32,
	SLOTS_RESERVED0,
	SLOTS_RESERVED1,
	SLOTS_SLOTS,
	RANGE_GPA,
	RANGE_SIZE,
	RANGE_MAX_LEVEL,
	RANGE_RESERVED0,
	RANGE_RESERVED1,
};

static const struct {
	const char *name;
	size_t offset;
	size_t size;
} fields[] = {
	[ATTACH_VM_FD] = { "vm_fd", offsetof(union gtdp_arg, attach.vm_fd), 4 },
	[ATTACH_RESERVED0] = { "reserved[0]", offsetof(union gtdp_arg, attach.reserved[0]), 8 },
	[ATTACH_RESERVED1] = { "reserved[1]", offsetof(union gtdp_arg, attach.reserved[1]), 8 },
	[ATTACH_RESERVED2] = { "reserved[2]", offsetof(union gtdp_arg, attach.reserved[2]), 8 },
	[SLOTS_COUNT] = { "count", offsetof(union gtdp_arg, slots.count), 4 },
	[SLOTS_RESERVED32] = { "reserved32", offsetof(union gtdp_arg, slots.reserved32), 4 },
	[SLOTS_RESERVED0] = { "reserved[0]", offsetof(union gtdp_arg, slots.reserved[0]), 8 },
	[SLOTS_RESERVED1] = { "reserved[1]", offsetof(union gtdp_arg, slots.reserved[1]), 8 },
	[SLOTS_SLOTS] = { "slots", offsetof(union gtdp_arg, slots.slots), 8 },
	[RANGE_GPA] = { "gpa", offsetof(union gtdp_arg, range.gpa), 8 },
	[RANGE_SIZE] = { "size", offsetof(union gtdp_arg, range.size), 8 },
	[RANGE_MAX_LEVEL] = { "max_level", offsetof(union gtdp_arg, range.max_level), 4 },
	[RANGE_RESERVED0] = { "reserved[0]", offsetof(union gtdp_arg, range.reserved[0]), 8 },
	[RANGE_RESERVED1] = { "reserved[1]", offsetof(union gtdp_arg, range.reserved[1]), 8 },
};

/* What is wrong in a field, with the calls of @first to @last. */
static const struct wrong {
	enum gtdp_call first;
	enum gtdp_call last;
	enum field field;
	u64 value;
	int err;
} wrongs[] = {
	{ GTDP_ATTACH, GTDP_ATTACH, ATTACH_VM_FD, -1, EBADF },
	{ GTDP_ATTACH, GTDP_ATTACH, ATTACH_VM_FD, INT_MIN, EBADF },
	{ GTDP_ATTACH, GTDP_ATTACH, ATTACH_VM_FD, INT_MAX, EBADF },
	{ GTDP_ATTACH, GTDP_ATTACH, ATTACH_RESERVED0, 1, EINVAL },
	{ GTDP_ATTACH, GTDP_ATTACH, ATTACH_RESERVED1, 1ull << 63, EINVAL },
	{ GTDP_ATTACH, GTDP_ATTACH, ATTACH_RESERVED2, -1, EINVAL },

	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_COUNT, 0, E2BIG },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_COUNT, 1, E2BIG },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_RESERVED32, 1, EINVAL },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_RESERVED32, 1u << 31, EINVAL },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_RESERVED0, 1, EINVAL },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_RESERVED1, 1ull << 63, EINVAL },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_SLOTS, 0, EFAULT },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_SLOTS, 1, EFAULT },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_SLOTS, -1ull, EFAULT },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_SLOTS, 1ull << 63, EFAULT },
	{ GTDP_GET_SLOTS, GTDP_GET_SLOTS, SLOTS_SLOTS, 0xffff888000000000, EFAULT },

	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, GPA + 2048, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, GPA + PAGE_SIZE - 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, 1ull << 52, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, 1ull << 63, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, -SIZE, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, -PAGE_SIZE, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_GPA, -1ull, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, 0, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, PAGE_SIZE - 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, PAGE_SIZE + 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, 1ull << 52, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, 1ull << 63, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, -GPA, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, -PAGE_SIZE, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_SIZE, -1ull, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_MAX_LEVEL, 4, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_MAX_LEVEL, 1u << 31, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_MAX_LEVEL, -1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_RESERVED0, 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_RESERVED0, 1ull << 63, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_RESERVED1, 1, EINVAL },
	{ GTDP_BUILD, GTDP_COLLAPSE, RANGE_RESERVED1, -1, EINVAL },
	{ GTDP_BUILD, GTDP_BUILD, RANGE_GPA, GPA - PAGE_SIZE, ENOENT },
	{ GTDP_BUILD, GTDP_BUILD, RANGE_GPA, GPA + SIZE, ENOENT },
	{ GTDP_SPLIT, GTDP_SPLIT, RANGE_MAX_LEVEL, 3, EINVAL },
	{ GTDP_RELEASE, GTDP_RELEASE, RANGE_MAX_LEVEL, 1, EINVAL },
	{ GTDP_RELEASE, GTDP_RELEASE, RANGE_MAX_LEVEL, 2, EINVAL },
	{ GTDP_RELEASE, GTDP_RELEASE, RANGE_MAX_LEVEL, 3, EINVAL },
};

static void assert_refused(enum gtdp_call call, const char *field, u64 value,
			   union gtdp_arg *arg, int err)
{
	union gtdp_arg before = *arg;
	int ret = gtdp_do_call(&t, call, arg);
	char what[128];

	snprintf(what, sizeof(what), "%s with %s 0x%lx", gtdp_calls[call].name, field, value);
	TEST_ASSERT(ret < 0 && errno == err, "%s: expected errno %i (%s), got %i, errno %i (%s)",
		    what, err, strerror(err), ret, errno, strerror(errno));
	/* Only E2BIG has something to tell. */
	if (err == E2BIG)
		before.slots.count = 2;
	TEST_ASSERT(!memcmp(&before, arg, sizeof(before)), "%s wrote to its argument", what);
	gtdp_assert_nothing_built(&t, what);
}

static void check_fields(enum gtdp_call call)
{
	const struct wrong *w;
	union gtdp_arg arg;
	int i;

	for (i = 0; i < ARRAY_SIZE(wrongs); i++) {
		w = &wrongs[i];
		if (call < w->first || call > w->last)
			continue;
		arg = gtdp_good_arg(&t, call);
		memcpy(arg.bytes + fields[w->field].offset, &w->value, fields[w->field].size);
		assert_refused(call, fields[w->field].name, w->value, &arg, w->err);
	}
}

static const char *test_fields(void)
{
	enum gtdp_call call;

	for (call = 0; call < GTDP_NR_CALLS; call++) {
		gtdp_call_open(&t, call != GTDP_ATTACH);
		check_fields(call);
		gtdp_call_close(&t);
	}
	return NULL;
}

/* All bits that have no meaning yet. */
static const char *test_flags(void)
{
	static const struct {
		enum gtdp_call call;
		size_t offset;
		u32 known;
	} flags[] = {
		{ GTDP_ATTACH, offsetof(union gtdp_arg, attach.flags), KVM_GTDP_ATTACH_AUTO },
		{ GTDP_BUILD, offsetof(union gtdp_arg, range.flags),
		  KVM_GTDP_BUILD_NOPIN | KVM_GTDP_BUILD_PRESENT },
		{ GTDP_RELEASE, offsetof(union gtdp_arg, range.flags), 0 },
		{ GTDP_SPLIT, offsetof(union gtdp_arg, range.flags), 0 },
		{ GTDP_COLLAPSE, offsetof(union gtdp_arg, range.flags), 0 },
	};
	union gtdp_arg arg;
	int i, bit;
	u32 value;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		gtdp_call_open(&t, flags[i].call != GTDP_ATTACH);
		for (bit = 0; bit < 32; bit++) {
			value = 1u << bit;
			if (value & flags[i].known)
				continue;
			arg = gtdp_good_arg(&t, flags[i].call);
			memcpy(arg.bytes + flags[i].offset, &value, sizeof(value));
			assert_refused(flags[i].call, "flags", value, &arg, EINVAL);
		}
		gtdp_call_close(&t);
	}
	return NULL;
}

/* None of the above was refused for another reason: as it is, it is good. */
static const char *test_good(void)
{
	union gtdp_arg arg;
	enum gtdp_call call;
	int ret;

	for (call = 0; call < GTDP_NR_CALLS; call++) {
		gtdp_call_open(&t, call != GTDP_ATTACH);
		arg = gtdp_good_arg(&t, call);
		ret = gtdp_do_call(&t, call, &arg);
		TEST_ASSERT(ret >= 0, "%s failed, errno: %i (%s)", gtdp_calls[call].name, errno,
			    strerror(errno));
		if (gtdp_is_range_call(call)) {
			TEST_ASSERT_EQ(arg.range.gpa, GPA + SIZE);
			TEST_ASSERT_EQ(arg.range.size, 0);
		}
		if (call == GTDP_GET_SLOTS)
			TEST_ASSERT_EQ(arg.slots.count, 2);
		if (call == GTDP_ATTACH)
			close(ret);
		gtdp_call_close(&t);
	}
	return NULL;
}

/* Where nobody can read or write an argument, or not all of it. */
static void check_nowhere(enum gtdp_call call, char *end)
{
	void *bad[] = {
		NULL, (void *)1, (void *)-1ull, (void *)(1ull << 63), (void *)0xffff888000000000,
		(void *)0xffffffff81000000, end, end - 8,
	};
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ret = gtdp_do_call(&t, call, bad[i]);
		TEST_ASSERT(ret < 0 && errno == EFAULT, "%s at %p: got %i, errno: %i",
			    gtdp_calls[call].name, bad[i], ret, errno);
		gtdp_assert_nothing_built(&t, gtdp_calls[call].name);
	}
}

static void check_read_only(enum gtdp_call call, char *page)
{
	union gtdp_arg arg = gtdp_good_arg(&t, call);
	int ret;

	memcpy(page, &arg, sizeof(arg));
	mprotect(page, PAGE_SIZE, PROT_READ);
	ret = gtdp_do_call(&t, call, page);
	if (gtdp_calls[call].writes) {
		TEST_ASSERT(ret < 0 && errno == EFAULT, "%s of a read-only argument: %i, errno: %i",
			    gtdp_calls[call].name, ret, errno);
	} else {
		TEST_ASSERT(ret >= 0, "%s failed, errno: %i", gtdp_calls[call].name, errno);
		close(ret);
	}
	mprotect(page, PAGE_SIZE, PROT_READ | PROT_WRITE);
}

static const char *test_pointers(void)
{
	enum gtdp_call call;
	char *page;

	page = mmap(NULL, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	TEST_ASSERT(page != MAP_FAILED, "mmap() failed, errno: %i", errno);
	mprotect(page + PAGE_SIZE, PAGE_SIZE, PROT_NONE);

	for (call = 0; call < GTDP_NR_CALLS; call++) {
		gtdp_call_open(&t, call != GTDP_ATTACH);
		check_nowhere(call, page + PAGE_SIZE);
		check_read_only(call, page);
		gtdp_call_close(&t);
	}
	munmap(page, 2 * PAGE_SIZE);
	return NULL;
}

static void assert_notty(int fd, unsigned long cmd)
{
	static u8 arg[1 << _IOC_SIZEBITS];
	int ret = ioctl(fd, cmd, arg);

	TEST_ASSERT(ret < 0 && errno == ENOTTY, "0x%lx: expected ENOTTY, got %i, errno: %i", cmd,
		    ret, errno);
}

static bool is_call(unsigned long cmd, bool on_device)
{
	int i;

	for (i = 0; i < GTDP_NR_CALLS; i++) {
		if (gtdp_calls[i].cmd == cmd && gtdp_calls[i].on_device == on_device)
			return true;
	}
	return false;
}

/* Calls that there are not, or of another size, direction or file. */
static const char *test_commands(void)
{
	static const unsigned long foreign[] = {
		KVM_GET_API_VERSION, KVM_CREATE_VM, KVM_CREATE_VCPU, KVM_RUN, KVM_GET_DIRTY_LOG,
		KVM_SET_USER_MEMORY_REGION, KVM_CHECK_EXTENSION, KVM_GET_STATS_FD,
	};
	unsigned long cmd;
	int i, device, fd;

	gtdp_call_open(&t, true);
	for (device = 0; device < 2; device++) {
		fd = device ? t.dev_fd : t.fd;
		for (i = 0; i < 256; i++) {
			assert_notty(fd, _IOC(_IOC_NONE, KVM_GTDP_IOC, i, 0));
			assert_notty(fd, _IOC(_IOC_READ | _IOC_WRITE, KVM_GTDP_IOC, i, 8));
		}
		for (i = 0; i < GTDP_NR_CALLS; i++) {
			cmd = gtdp_calls[i].cmd;
			if (gtdp_calls[i].on_device != device)
				assert_notty(fd, cmd);
			assert_notty(fd, cmd + (8ul << _IOC_SIZESHIFT));
			assert_notty(fd, cmd - (8ul << _IOC_SIZESHIFT));
			assert_notty(fd, cmd ^ (1ul << _IOC_TYPESHIFT));
			cmd ^= (unsigned long)_IOC_READ << _IOC_DIRSHIFT;
			if (!is_call(cmd, device))
				assert_notty(fd, cmd);
		}
		for (i = 0; i < ARRAY_SIZE(foreign); i++)
			assert_notty(fd, foreign[i]);
	}
	gtdp_assert_nothing_built(&t, "an unknown call");
	gtdp_call_close(&t);
	return NULL;
}

/* Last: none of the cases above has left anything, or made the kernel talk. */
static struct gtdp_host_state before;
static int log_fd;

static const char *test_left_behind(void)
{
	gtdp_assert_host_state(&before, GTDP_FREE_SLACK);
	gtdp_assert_log_silent(log_fd);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "good", test_good },
	{ "fields", test_fields },
	{ "flags", test_flags },
	{ "pointers", test_pointers },
	{ "commands", test_commands },
	{ "left_behind", test_left_behind },
};

int main(int argc, char *argv[])
{
	gtdp_host_state(&before);
	log_fd = gtdp_log_open();
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
