// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test that builds from other processes and threads get along with each other,
 * with changes of memory slots, and with the sudden end of the VMM.
 */
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "gtdp.h"

#define GPA		GTDP_TEST_GPA
#define SLOT		GTDP_TEST_SLOT
#define SIZE		SZ_32M
#define NR_THREADS	4

/* A process with a VM, or with a handle on one, and a socket to talk to it. */
struct peer {
	pid_t pid;
	int sock;
};

static struct peer start_peer(void (*fn)(int sock, u64 arg), u64 arg)
{
	struct peer peer;
	int socks[2];

	TEST_ASSERT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				socks), "socketpair() failed: %i", errno);
	peer.pid = fork();
	TEST_ASSERT(peer.pid >= 0, "fork() failed, errno: %i", errno);
	if (!peer.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(socks[0]);
		fn(socks[1], arg);
		_exit(KSFT_PASS);
	}
	close(socks[1]);
	peer.sock = socks[0];
	return peer;
}

static void kill_peer(struct peer *peer)
{
	TEST_ASSERT(!kill(peer->pid, SIGKILL), "kill() failed: %i", errno);
	TEST_ASSERT(waitpid(peer->pid, NULL, 0) == peer->pid,
		    "waitpid() failed: %i", errno);
	close(peer->sock);
}

static void join_peer(struct peer *peer)
{
	int status;

	TEST_ASSERT(waitpid(peer->pid, &status, 0) == peer->pid,
		    "waitpid() failed: %i", errno);
	TEST_ASSERT(!status, "the other process failed, status 0x%x", status);
	close(peer->sock);
}

static void say(int sock)
{
	char c = 0;

	TEST_ASSERT(send(sock, &c, 1, MSG_NOSIGNAL) == 1,
		    "the other process has gone");
}

static void hear(int sock)
{
	char c;

	TEST_ASSERT(recv(sock, &c, 1, 0) == 1, "the other process has gone");
}

/* Has the VM's fd only: attaches, builds, and keeps the handle until told. */
static void foreign_builder(int sock, u64 all)
{
	int dev_fd = gtdp_open();
	int vm_fd = gtdp_recv_fd(sock);
	int fd = __gtdp_attach(dev_fd, vm_fd, 0);

	TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
	close(vm_fd);
	close(dev_fd);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	TEST_ASSERT_EQ(gtdp_stats(fd).pinned_bytes, all);
	TEST_ASSERT_EQ(gtdp_stats(fd).mapped_bytes, all);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	say(sock);

	hear(sock);
	TEST_ASSERT_EQ(gtdp_stats(fd).faults, 0);
	say(sock);
	hear(sock);
}

static const char *test_foreign(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct peer peer;
	u64 all;
	int i;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	all = SIZE + memslot2region(vm, 0)->region.memory_size;

	/* Once it lets go by itself, once it is killed. */
	for (i = 0; i < 2; i++) {
		peer = start_peer(foreign_builder, all);
		TEST_ASSERT(!gtdp_send_fd(peer.sock, vm->fd), "no fd sent");
		hear(peer.sock);
		TEST_ASSERT_EQ(gtdp_own_pin(), all);
		gtdp_touch(vcpu, GPA, SIZE);
		say(peer.sock);
		hear(peer.sock);
		if (i) {
			kill_peer(&peer);
		} else {
			say(peer.sock);
			join_peer(&peer);
		}
		TEST_ASSERT_EQ(gtdp_own_pin(), 0);
		gtdp_touch(vcpu, GPA, SIZE);
	}
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), 0);

	kvm_vm_free(vm);
	return NULL;
}

struct builder {
	pthread_t thread;
	int fd;
	u64 gpa;
	u64 size;
	int ret;
};

static void *run_builder(void *arg)
{
	struct builder *b = arg;

	b->ret = gtdp_build(b->fd, b->gpa, b->size, 0, 0);
	return NULL;
}

static void check_parallel(enum vm_mem_backing_src_type src, bool disjoint)
{
	struct builder builders[NR_THREADS];
	struct kvm_gtdp_stats stats;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	u64 faults;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, src, GPA, SLOT, SIZE);
	fd = gtdp_attach(vm, 0);

	for (i = 0; i < NR_THREADS; i++) {
		builders[i] = (struct builder) {
			.fd = fd,
			.gpa = GPA + (disjoint ? i * SIZE / NR_THREADS : 0),
			.size = disjoint ? SIZE / NR_THREADS : SIZE,
		};
		pthread_create(&builders[i].thread, NULL, run_builder,
			       &builders[i]);
	}
	for (i = 0; i < NR_THREADS; i++) {
		pthread_join(builders[i].thread, NULL);
		TEST_ASSERT_EQ(builders[i].ret, 0);
	}

	stats = gtdp_stats(fd);
	TEST_ASSERT_EQ(stats.built_bytes, SIZE);
	TEST_ASSERT_EQ(stats.mapped_bytes, SIZE);
	TEST_ASSERT_EQ(stats.pinned_bytes, SIZE);
	TEST_ASSERT_EQ(gtdp_own_pin(), SIZE);
	gtdp_build_ok(fd, 0, memslot2region(vm, 0)->region.memory_size, 0, 0);
	faults = gtdp_vcpu_stat(vcpu, "pf_taken");
	gtdp_touch(vcpu, GPA, SIZE);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken"), faults);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
}

static const char *test_parallel(void)
{
	bool huge = gtdp_free_hugepages(SZ_2M) >= SIZE / SZ_2M;
	int i;

	for (i = 0; i < 2; i++) {
		check_parallel(VM_MEM_SRC_SHMEM, i);
		check_parallel(VM_MEM_SRC_ANONYMOUS, i);
		if (huge)
			check_parallel(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, i);
	}
	return huge ? NULL : "2M part needs 16 free huge pages of 2M";
}

static void ignore_signal(int sig)
{
}

/* Signals that come faster than a build ends: each call gets further. */
static const char *test_signals(void)
{
	struct sigaction act = { .sa_handler = ignore_signal };
	struct itimerval timer = {
		.it_interval.tv_usec = 500,
		.it_value.tv_usec = 500,
	};
	u64 gpa = GPA, size = SIZE, calls = 0;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int ret, fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	fd = gtdp_attach(vm, 0);

	sigaction(SIGVTALRM, &act, NULL);
	setitimer(ITIMER_VIRTUAL, &timer, NULL);
	sigaction(SIGPROF, &act, NULL);
	setitimer(ITIMER_PROF, &timer, NULL);
	do {
		ret = __gtdp_build(fd, &gpa, &size, 0, 0);
		TEST_ASSERT(!ret || ret == -EINTR || ret == -EAGAIN,
			    "BUILD failed: %i (%s)", ret, strerror(-ret));
		calls++;
	} while (size);
	memset(&timer, 0, sizeof(timer));
	setitimer(ITIMER_VIRTUAL, &timer, NULL);
	setitimer(ITIMER_PROF, &timer, NULL);
	ksft_print_msg("built in %lu calls\n", calls);

	TEST_ASSERT_EQ(gtdp_stats(fd).mapped_bytes, SIZE);
	TEST_ASSERT_EQ(gtdp_own_pin(), SIZE);
	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	return NULL;
}

static bool stop_churn;

static void *run_churn(void *arg)
{
	struct builder *b = arg;
	int ret;

	while (!READ_ONCE(stop_churn)) {
		ret = gtdp_build(b->fd, b->gpa, b->size, 0, 0);
		TEST_ASSERT(!ret || ret == -ENOENT,
			    "BUILD failed: %i (%s)", ret, strerror(-ret));
		if (!ret)
			b->ret++;
		ret = gtdp_release(b->fd, b->gpa, b->size / 2);
		TEST_ASSERT(!ret, "RELEASE failed: %i", ret);
		gtdp_stats(b->fd);
	}
	return NULL;
}

/* Builders while another thread deletes, creates and discards their memory. */
static void check_churn(u32 attach_flags)
{
	struct builder builders[2];
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	void *mem;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	fd = gtdp_attach(vm, attach_flags);

	stop_churn = false;
	for (i = 0; i < 2; i++) {
		builders[i] = (struct builder) {
			.fd = fd,
			.gpa = GPA + i * SIZE / 4,
			.size = SIZE / 2,
		};
		pthread_create(&builders[i].thread, NULL, run_churn,
			       &builders[i]);
	}
	for (i = 0; i < 60; i++) {
		vm_set_user_memory_region(vm, SLOT, 0, GPA, SIZE, mem);
		usleep(i * 500);
		if (i % 3 == 0)
			madvise(mem + SIZE / 4, SIZE / 4, MADV_DONTNEED);
		if (i % 4 == 0)
			vm_set_user_memory_region(vm, SLOT,
						  KVM_MEM_LOG_DIRTY_PAGES, GPA,
						  SIZE, mem);
		vm_set_user_memory_region(vm, SLOT, 0, GPA, 0, mem);
	}
	WRITE_ONCE(stop_churn, true);
	for (i = 0; i < 2; i++) {
		pthread_join(builders[i].thread, NULL);
		ksft_print_msg("builder %i: %i whole builds\n", i,
			       builders[i].ret);
	}

	TEST_ASSERT_EQ(gtdp_stats(fd).pinned_bytes, 0);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	vm_set_user_memory_region(vm, SLOT, 0, GPA, SIZE, mem);
	gtdp_build_ok(fd, GPA, SIZE, 0, 0);
	TEST_ASSERT_EQ(gtdp_stats(fd).pinned_bytes, SIZE);
	TEST_ASSERT_EQ(gtdp_own_pin(), SIZE);

	close(fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	kvm_vm_free(vm);
	munmap(mem, SIZE);
}

static const char *test_slot_churn(void)
{
	check_churn(0);
	check_churn(KVM_GTDP_ATTACH_AUTO);
	return NULL;
}

/* A VMM: hands its VM's fd over and goes on until it is told or killed. */
static void vmm(int sock, u64 page_size)
{
	enum vm_mem_backing_src_type src = page_size == SZ_4K ?
					   VM_MEM_SRC_SHMEM :
					   VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, src, GPA, SLOT, SIZE);
	TEST_ASSERT(!gtdp_send_fd(sock, vm->fd), "no fd sent");
	hear(sock);
	/* Leaves without cleaning up, as VMMs do. */
}

static void assert_gone(int fd)
{
	struct kvm_gtdp_stats stats;
	struct kvm_gtdp_slots slots = {};
	int ret;

	TEST_ASSERT(gtdp_wait_hup(fd, 10000), "no POLLHUP");
	ret = gtdp_build(fd, GPA, SIZE, 0, 0);
	TEST_ASSERT_EQ(ret, -ESRCH);
	ret = gtdp_release(fd, GPA, SIZE);
	TEST_ASSERT_EQ(ret, -ESRCH);
	ret = __kvm_ioctl(fd, KVM_GTDP_STATS, &stats);
	TEST_ASSERT(ret < 0 && errno == ESRCH, "STATS: errno %i", errno);
	ret = __kvm_ioctl(fd, KVM_GTDP_GET_SLOTS, &slots);
	TEST_ASSERT(ret < 0 && errno == ESRCH, "GET_SLOTS: errno %i", errno);
}

/*
 * The handle, and the VM's fd if kept, stay open after the VMM has gone.  Its
 * memory comes back all the same.
 */
static void check_outlive(size_t page_size, bool keep_vm_fd, bool killed)
{
	u64 before = gtdp_free_hugepages(page_size);
	int fd, vm_fd, dev_fd = gtdp_open();
	struct peer peer = start_peer(vmm, page_size);

	vm_fd = gtdp_recv_fd(peer.sock);
	fd = __gtdp_attach(dev_fd, vm_fd, KVM_GTDP_ATTACH_AUTO);
	TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
	if (!keep_vm_fd)
		close(vm_fd);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	TEST_ASSERT(gtdp_vm_pin(peer.pid) > SIZE, "nothing is pinned");
	TEST_ASSERT(!gtdp_wait_hup(fd, 0), "POLLHUP while the VMM lives");

	if (killed) {
		kill_peer(&peer);
	} else {
		say(peer.sock);
		join_peer(&peer);
	}
	assert_gone(fd);
	if (page_size != SZ_4K)
		TEST_ASSERT(gtdp_wait_free_hugepages(page_size, before, 10000),
			    "%lu of %lu huge pages came back",
			    gtdp_free_hugepages(page_size), before);
	if (keep_vm_fd) {
		int ret = __gtdp_attach(dev_fd, vm_fd, 0);

		TEST_ASSERT(ret < 0 && errno == ESRCH,
			    "ATTACH to a dead VM: %i, errno %i", ret, errno);
		close(vm_fd);
	}
	close(fd);
	close(dev_fd);
}

static const char *test_outlive(void)
{
	bool huge = gtdp_free_hugepages(SZ_2M) >= SIZE / SZ_2M;
	int i;

	for (i = 0; i < 4; i++) {
		check_outlive(SZ_4K, i & 1, i & 2);
		if (huge)
			check_outlive(SZ_2M, i & 1, i & 2);
	}
	return huge ? NULL : "2M part needs 16 free huge pages of 2M";
}

struct killer {
	pid_t pid;
	int usecs;
};

static void *run_killer(void *arg)
{
	struct killer *killer = arg;

	usleep(killer->usecs);
	kill(killer->pid, SIGKILL);
	return NULL;
}

/* At any moment of a build. */
static const char *test_vmm_killed(void)
{
	u64 before = gtdp_free_hugepages(SZ_2M);
	size_t page_size = before >= SIZE / SZ_2M ? SZ_2M : SZ_4K;
	int i, ret, fd, vm_fd, dev_fd = gtdp_open();
	struct killer killer;
	struct peer peer;
	pthread_t thread;

	for (i = 0; i < 20; i++) {
		peer = start_peer(vmm, i & 1 ? page_size : SZ_4K);
		vm_fd = gtdp_recv_fd(peer.sock);
		fd = __gtdp_attach(dev_fd, vm_fd, 0);
		TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
		if (i & 2)
			close(vm_fd);

		killer = (struct killer) { peer.pid, i * 1000 };
		pthread_create(&thread, NULL, run_killer, &killer);
		do {
			ret = gtdp_build_slots(fd);
			if (!ret)
				ret = gtdp_release(fd, GPA, SIZE);
		} while (!ret);
		TEST_ASSERT(ret == -ESRCH || ret == -EFAULT,
			    "BUILD: expected ESRCH, got %i (%s)", ret,
			    strerror(-ret));
		pthread_join(thread, NULL);
		kill_peer(&peer);
		assert_gone(fd);
		TEST_ASSERT(gtdp_wait_free_hugepages(SZ_2M, before, 10000) ||
			    page_size == SZ_4K,
			    "%lu of %lu huge pages came back",
			    gtdp_free_hugepages(SZ_2M), before);
		close(fd);
		if (!(i & 2))
			close(vm_fd);
	}
	close(dev_fd);
	return NULL;
}

static void builder_forever(int sock, u64 unused)
{
	int dev_fd = gtdp_open();
	int vm_fd = gtdp_recv_fd(sock);
	int fd = __gtdp_attach(dev_fd, vm_fd, 0);

	TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
	say(sock);
	while (!gtdp_build_slots(fd) && !gtdp_release(fd, GPA, SIZE))
		;
}

/* As a daemon is killed in the middle of its work: the guest does not care. */
static const char *test_builder_killed(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct peer peer;
	int i, fd;

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	for (i = 0; i < 10; i++) {
		peer = start_peer(builder_forever, 0);
		TEST_ASSERT(!gtdp_send_fd(peer.sock, vm->fd), "no fd sent");
		hear(peer.sock);
		usleep(i * 2000);
		kill_peer(&peer);
		TEST_ASSERT_EQ(gtdp_own_pin(), 0);
		gtdp_touch(vcpu, GPA, SIZE);
	}

	fd = gtdp_attach(vm, 0);
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	close(fd);
	kvm_vm_free(vm);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "property 2: from outside the VMM's process", test_foreign },
	{ "parallel", test_parallel },
	{ "signals", test_signals },
	{ "slot_churn", test_slot_churn },
	{ "outlive", test_outlive },
	{ "vmm_killed", test_vmm_killed },
	{ "builder_killed", test_builder_killed },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
