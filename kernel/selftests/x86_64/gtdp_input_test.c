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

/* One field, at @offset, of @size bytes. */
struct wrong {
	enum gtdp_call call;
	const char *field;
	size_t offset;
	size_t size;
	u64 value;
	int err;
};

#define WRONG(_call, _member, _field, _value, _err)				\
	{ _call, #_field, offsetof(union gtdp_arg, _member._field),			\
	  sizeof(((union gtdp_arg *)0)->_member._field), _value, _err }

#define WRONG_RANGE(_field, _value, _err)					\
	WRONG(GTDP_BUILD, range, _field, _value, _err),				\
	WRONG(GTDP_RELEASE, range, _field, _value, _err),				\
	WRONG(GTDP_SPLIT, range, _field, _value, _err),				\
	WRONG(GTDP_COLLAPSE, range, _field, _value, _err)

static const struct wrong wrongs[] = {
	WRONG(GTDP_ATTACH, attach, vm_fd, -1, EBADF),
	WRONG(GTDP_ATTACH, attach, vm_fd, INT_MIN, EBADF),
	WRONG(GTDP_ATTACH, attach, vm_fd, INT_MAX, EBADF),
	WRONG(GTDP_ATTACH, attach, reserved[0], 1, EINVAL),
	WRONG(GTDP_ATTACH, attach, reserved[1], 1ull << 63, EINVAL),
	WRONG(GTDP_ATTACH, attach, reserved[2], -1, EINVAL),

	WRONG(GTDP_GET_SLOTS, slots, count, 0, E2BIG),
	WRONG(GTDP_GET_SLOTS, slots, count, 1, E2BIG),
	WRONG(GTDP_GET_SLOTS, slots, reserved32, 1, EINVAL),
	WRONG(GTDP_GET_SLOTS, slots, reserved32, 1u << 31, EINVAL),
	WRONG(GTDP_GET_SLOTS, slots, reserved[0], 1, EINVAL),
	WRONG(GTDP_GET_SLOTS, slots, reserved[1], 1ull << 63, EINVAL),
	WRONG(GTDP_GET_SLOTS, slots, slots, 0, EFAULT),
	WRONG(GTDP_GET_SLOTS, slots, slots, 1, EFAULT),
	WRONG(GTDP_GET_SLOTS, slots, slots, -1ull, EFAULT),
	WRONG(GTDP_GET_SLOTS, slots, slots, 1ull << 63, EFAULT),
	WRONG(GTDP_GET_SLOTS, slots, slots, 0xffff888000000000, EFAULT),

	WRONG_RANGE(gpa, 1, EINVAL),
	WRONG_RANGE(gpa, GPA + 2048, EINVAL),
	WRONG_RANGE(gpa, GPA + PAGE_SIZE - 1, EINVAL),
	WRONG_RANGE(gpa, 1ull << 52, EINVAL),
	WRONG_RANGE(gpa, 1ull << 63, EINVAL),
	WRONG_RANGE(gpa, -SIZE, EINVAL),
	WRONG_RANGE(gpa, -PAGE_SIZE, EINVAL),
	WRONG_RANGE(gpa, -1ull, EINVAL),
	WRONG_RANGE(size, 0, EINVAL),
	WRONG_RANGE(size, 1, EINVAL),
	WRONG_RANGE(size, PAGE_SIZE - 1, EINVAL),
	WRONG_RANGE(size, PAGE_SIZE + 1, EINVAL),
	WRONG_RANGE(size, 1ull << 52, EINVAL),
	WRONG_RANGE(size, 1ull << 63, EINVAL),
	WRONG_RANGE(size, -GPA, EINVAL),
	WRONG_RANGE(size, -PAGE_SIZE, EINVAL),
	WRONG_RANGE(size, -1ull, EINVAL),
	WRONG_RANGE(max_level, 4, EINVAL),
	WRONG_RANGE(max_level, 1u << 31, EINVAL),
	WRONG_RANGE(max_level, -1, EINVAL),
	WRONG_RANGE(reserved[0], 1, EINVAL),
	WRONG_RANGE(reserved[0], 1ull << 63, EINVAL),
	WRONG_RANGE(reserved[1], 1, EINVAL),
	WRONG_RANGE(reserved[1], -1, EINVAL),
	WRONG(GTDP_BUILD, range, gpa, GPA - PAGE_SIZE, ENOENT),
	WRONG(GTDP_BUILD, range, gpa, GPA + SIZE, ENOENT),
	WRONG(GTDP_SPLIT, range, max_level, 3, EINVAL),
	WRONG(GTDP_RELEASE, range, max_level, 1, EINVAL),
	WRONG(GTDP_RELEASE, range, max_level, 2, EINVAL),
	WRONG(GTDP_RELEASE, range, max_level, 3, EINVAL),
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

static const char *test_fields(void)
{
	const struct wrong *w;
	union gtdp_arg arg;
	int pass, i;

	for (pass = 0; pass < 2; pass++) {
		gtdp_call_open(&t, pass);
		for (i = 0; i < ARRAY_SIZE(wrongs); i++) {
			w = &wrongs[i];
			if ((w->call != GTDP_ATTACH) != pass)
				continue;
			arg = gtdp_good_arg(&t, w->call);
			memcpy(arg.bytes + w->offset, &w->value, w->size);
			assert_refused(w->call, w->field, w->value, &arg, w->err);
		}
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
	munmap(page + PAGE_SIZE, PAGE_SIZE);

	for (call = 0; call < GTDP_NR_CALLS; call++) {
		gtdp_call_open(&t, call != GTDP_ATTACH);
		check_nowhere(call, page + PAGE_SIZE);
		check_read_only(call, page);
		gtdp_call_close(&t);
	}
	munmap(page, PAGE_SIZE);
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
