// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test what a handle says to bad use: other file operations, reads of any kind, use
 * after the end of the handle, of the VM or in another process, and a limit of its
 * pins.  Nothing may be left behind or logged.
 */
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "gtdp_call.h"
#include "gtdp_chaos.h"

#define GPA	GTDP_TEST_GPA
#define SLOT	GTDP_TEST_SLOT
#define SIZE	GTDP_CALL_SIZE

static struct gtdp_call_vm t;

/* What is neither ioctl, read nor poll. */
static const char *test_file_ops(void)
{
	char buf[64] = {};
	int i, fd;

	gtdp_call_open(&t, true);
	for (i = 0; i < 2; i++) {
		fd = i ? t.dev_fd : t.fd;
		TEST_ASSERT(write(fd, buf, sizeof(buf)) < 0 && errno == EINVAL,
			    "write(): errno %i", errno);
		TEST_ASSERT(mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED &&
			    errno == ENODEV, "mmap(): errno %i", errno);
		TEST_ASSERT(ftruncate(fd, 0) < 0 && errno == EINVAL, "ftruncate(): errno %i",
			    errno);
		TEST_ASSERT(fallocate(fd, 0, 0, PAGE_SIZE) < 0, "fallocate() works");
	}
	TEST_ASSERT(read(t.dev_fd, buf, sizeof(buf)) < 0 && errno == EINVAL,
		    "read() of the device: errno %i", errno);
	gtdp_assert_nothing_built(&t, "a file operation");
	gtdp_call_close(&t);
	return NULL;
}

static void on_alarm(int sig)
{
}

/* A read that waits can be interrupted, and one that must not wait does not. */
static void check_empty_read(int fd)
{
	struct sigaction act = { .sa_handler = on_alarm }, old;
	struct kvm_gtdp_event event;
	struct itimerval timer = { .it_value.tv_usec = 100000 };
	int flags = fcntl(fd, F_GETFL);

	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	TEST_ASSERT(read(fd, &event, sizeof(event)) < 0 && errno == EAGAIN,
		    "read() with nothing to read: errno %i", errno);
	fcntl(fd, F_SETFL, flags);

	sigaction(SIGALRM, &act, &old);
	setitimer(ITIMER_REAL, &timer, NULL);
	TEST_ASSERT(read(fd, &event, sizeof(event)) < 0 && errno == EINTR,
		    "interrupted read(): errno %i", errno);
	sigaction(SIGALRM, &old, NULL);
	alarm(GTDP_CASE_SECONDS);
}

static const char *test_events_read(void)
{
	static const size_t sizes[] = { 0, 1, 8, sizeof(struct kvm_gtdp_event) - 1 };
	struct kvm_gtdp_event events[4] = {};
	struct pollfd pfd;
	int i, fd, ret;

	gtdp_call_open(&t, true);
	fd = t.fd;
	check_empty_read(fd);

	/* Two events wait: a slot's end, and its new beginning. */
	vm_mem_region_delete(t.vm, SLOT);
	gtdp_add_memory(t.vm, VM_MEM_SRC_SHMEM, GPA + SZ_1G, SLOT, SIZE);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ret = read(fd, events, sizes[i]);
		/* A read of nothing may well give nothing. */
		TEST_ASSERT((ret < 0 && errno == EINVAL) || (!ret && !sizes[i]),
			    "read() of %zu bytes: got %i, errno: %i", sizes[i], ret, errno);
	}
	ret = read(fd, (void *)0xffff888000000000, sizeof(events));
	TEST_ASSERT(ret < 0 && errno == EFAULT, "read() to nowhere: got %i, errno: %i", ret, errno);

	pfd = (struct pollfd) { .fd = fd, .events = POLLIN };
	TEST_ASSERT(poll(&pfd, 1, 1000) == 1 && pfd.revents == POLLIN, "poll(): 0x%x", pfd.revents);
	ret = read(fd, events, sizeof(events[0]) * 2 - 1);
	TEST_ASSERT(ret == sizeof(events[0]), "read() with room for one event: got %i", ret);

	/* After the VM, what it left behind, and the end. */
	t.fd = -1;
	kvm_vm_free(t.vm);
	TEST_ASSERT(gtdp_wait_hup(fd, 5000), "no POLLHUP from a freed VM");
	for (i = 0; i < KVM_GTDP_MAX_EVENTS; i++) {
		ret = read(fd, events, sizeof(events));
		if (!ret)
			break;
		TEST_ASSERT(ret > 0 && !(ret % sizeof(events[0])), "read(): got %i, errno: %i", ret,
			    errno);
	}
	TEST_ASSERT_EQ(ret, 0);
	TEST_ASSERT_EQ(read(fd, events, sizeof(events)), 0);
	TEST_ASSERT(read(fd, events, 1) <= 0, "read() of one byte");
	close(fd);
	close(t.dev_fd);
	return NULL;
}

static void *read_to_the_end(void *arg)
{
	struct kvm_gtdp_event event;
	ssize_t n;

	do {
		n = read(*(int *)arg, &event, sizeof(event));
	} while (n == sizeof(event));
	return (void *)n;
}

static void *wait_readable(void *arg)
{
	struct pollfd pfd = { .fd = *(int *)arg, .events = POLLIN };

	return (void *)(long)(poll(&pfd, 1, -1) == 1 ? pfd.revents : -1);
}

/* Who waits when something happens, or when there is nothing more to come. */
static const char *test_waiting(void)
{
	pthread_t reader, poller;
	void *ret;

	gtdp_call_open(&t, true);
	pthread_create(&poller, NULL, wait_readable, &t.fd);
	usleep(100 * 1000);
	vm_mem_region_delete(t.vm, SLOT);
	pthread_join(poller, &ret);
	TEST_ASSERT((long)ret == POLLIN, "poll(): 0x%lx", (long)ret);

	pthread_create(&reader, NULL, read_to_the_end, &t.fd);
	usleep(100 * 1000);
	kvm_vm_free(t.vm);
	pthread_join(reader, &ret);
	TEST_ASSERT(!ret, "read() when the VM goes: %li", (long)ret);
	close(t.fd);
	close(t.dev_fd);
	return NULL;
}

/* As a program of 32 bits calls it.  The argument is below 4G. */
static int compat_ioctl(int fd, unsigned int cmd, void *arg)
{
	int ret;

	asm volatile("int $0x80" : "=a" (ret) : "0" (54), "b" (fd), "c" (cmd), "d" (arg)
		     : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

static void call_by_32_bits(void)
{
	union gtdp_arg *arg, want;
	enum gtdp_call call;
	int ret, fd;

	arg = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
		   -1, 0);
	TEST_ASSERT(arg != MAP_FAILED, "mmap() failed, errno: %i", errno);
	for (call = GTDP_GET_INFO; call < GTDP_NR_CALLS; call++) {
		if (call == GTDP_STATS)
			continue;	/* not twice the same */
		fd = gtdp_calls[call].on_device ? t.dev_fd : t.fd;
		want = *arg = gtdp_good_arg(&t, call);
		ret = compat_ioctl(fd, gtdp_calls[call].cmd, arg);
		TEST_ASSERT(!ret && !gtdp_do_call(&t, call, &want), "%s: %i",
			    gtdp_calls[call].name, ret);
		TEST_ASSERT(!memcmp(arg, &want, sizeof(want)), "%s: another result",
			    gtdp_calls[call].name);
	}
	TEST_ASSERT_EQ(compat_ioctl(t.fd, KVM_GTDP_BUILD, NULL), -EFAULT);
	TEST_ASSERT_EQ(compat_ioctl(t.fd, KVM_GTDP_GET_INFO, arg), -ENOTTY);
}

static const char *test_compat(void)
{
	int status;
	pid_t pid;

	if (access("/proc/sys/abi/vsyscall32", F_OK))
		return "this kernel has no system calls of 32 bits";

	gtdp_call_open(&t, true);
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid) {
		call_by_32_bits();
		_exit(KSFT_PASS);
	}
	TEST_ASSERT(waitpid(pid, &status, 0) == pid, "waitpid() failed, errno: %i", errno);
	gtdp_call_close(&t);
	TEST_ASSERT(!status, "the other process failed, status 0x%x", status);
	return NULL;
}

static void assert_all(int err)
{
	union gtdp_arg arg;
	enum gtdp_call call;
	int ret;

	for (call = 0; call < GTDP_NR_CALLS; call++) {
		if (gtdp_calls[call].on_device)
			continue;
		arg = gtdp_good_arg(&t, call);
		ret = gtdp_do_call(&t, call, &arg);
		TEST_ASSERT(ret < 0 && errno == err, "%s: expected errno %i, got %i, errno: %i",
			    gtdp_calls[call].name, err, ret, errno);
	}
}

static const char *test_closed(void)
{
	int fd;

	gtdp_call_open(&t, true);
	fd = t.fd;
	t.fd = -1;
	close(fd);
	assert_all(EBADF);
	t.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_all(ENOTTY);
	close(t.fd);
	t.fd = gtdp_attach(t.vm, 0);
	fd = t.fd;
	kvm_vm_free(t.vm);
	TEST_ASSERT(gtdp_wait_hup(fd, 5000), "no POLLHUP from a freed VM");
	assert_all(ESRCH);
	close(fd);
	close(t.dev_fd);
	return NULL;
}

/* Who has the VM's fd only may attach and build, and no more. */
static void in_other_process(void)
{
	struct kvm_userspace_memory_region region = {
		.slot = SLOT + 1,
		.guest_phys_addr = GPA + SZ_1G,
		.memory_size = SIZE,
		.userspace_addr = (uintptr_t)t.slots & ~(PAGE_SIZE - 1),
	};
	union gtdp_arg arg = gtdp_good_arg(&t, GTDP_BUILD);
	int ret;

	ret = ioctl(t.vm->fd, KVM_SET_USER_MEMORY_REGION, &region);
	TEST_ASSERT(ret < 0 && errno == EIO, "a foreign slot: got %i, errno: %i", ret, errno);

	t.fd = gtdp_attach(t.vm, 0);
	TEST_ASSERT(!gtdp_do_call(&t, GTDP_BUILD, &arg), "BUILD failed, errno: %i", errno);
	TEST_ASSERT_EQ(gtdp_stats(t.fd).pinned_bytes, SIZE);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
}

static const char *test_other_process(void)
{
	int status;
	pid_t pid;

	gtdp_call_open(&t, false);
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid) {
		in_other_process();
		_exit(KSFT_PASS);
	}
	TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
		    "the other process failed, status 0x%x", status);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	gtdp_call_close(&t);
	return NULL;
}

/* The limit is that of whoever attached, for all that the owner has pinned. */
static void with_a_limit(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct rlimit limit = { .rlim_cur = SIZE / 2, .rlim_max = SIZE / 2 };
	u64 gpa = GPA, size = SIZE;
	int ret;

	TEST_ASSERT(!syscall(__NR_capget, &header, data), "capget() failed, errno: %i", errno);
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	TEST_ASSERT(!syscall(__NR_capset, &header, data), "capset() failed, errno: %i", errno);
	TEST_ASSERT(!setrlimit(RLIMIT_MEMLOCK, &limit), "setrlimit() failed, errno: %i", errno);

	t.fd = gtdp_attach(t.vm, 0);
	do {
		ret = __gtdp_build(t.fd, &gpa, &size, 0, 0);
	} while (size && (!ret || ret == -EAGAIN || ret == -EINTR));
	TEST_ASSERT_EQ(ret, -ENOMEM);
	TEST_ASSERT(gtdp_stats(t.fd).pinned_bytes <= SIZE / 2 &&
		    gtdp_stats(t.fd).pinned_bytes >= SIZE / 2 - SZ_2M, "%llu bytes are pinned",
		    gtdp_stats(t.fd).pinned_bytes);

	/* It limits pins, and nothing else. */
	TEST_ASSERT(!gtdp_build(t.fd, GPA, SIZE, KVM_GTDP_BUILD_NOPIN, 0), "BUILD failed");
	TEST_ASSERT_EQ(gtdp_stats(t.fd).mapped_bytes, SIZE);
}

static const char *test_memlock(void)
{
	int status;
	pid_t pid;

	gtdp_call_open(&t, false);
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid) {
		with_a_limit();
		_exit(KSFT_PASS);
	}
	TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
		    "the other process failed, status 0x%x", status);
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
	{ "file_ops", test_file_ops },
	{ "read", test_events_read },
	{ "waiting", test_waiting },
	{ "compat", test_compat },
	{ "closed", test_closed },
	{ "other_process", test_other_process },
	{ "memlock", test_memlock },
	{ "left_behind", test_left_behind },
};

int main(int argc, char *argv[])
{
	gtdp_host_state(&before);
	log_fd = gtdp_log_open();
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
