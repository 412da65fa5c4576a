// SPDX-License-Identifier: GPL-2.0-only
/*
 * Test the pins of a built mapping: that they are there, whom they are charged
 * to, how much he may have, and that all of them go, however it ends.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "gtdp_bed.h"

#define GPA	((u64)GTDP_TEST_GPA)
#define SLOT	GTDP_TEST_SLOT
#define SIZE	SZ_16M

#define WAIT_MSECS	10000

/* What the host could give to somebody else. */
static u64 unused_memory(void)
{
	return gtdp_find_number("/proc/meminfo", "MemAvailable: %lu kB") *
	       SZ_1K;
}

static const char *check_release(struct gtdp_bed *bed)
{
	u64 all = GTDP_BED_SIZE + bed->rest;

	gtdp_assert_pinned(bed->fd, all);

	/* By the range... */
	TEST_ASSERT(!gtdp_release(bed->fd, GPA, SZ_8M), "RELEASE failed");
	gtdp_assert_pinned(bed->fd, all - SZ_8M);
	TEST_ASSERT(!gtdp_release(bed->fd, GPA, GTDP_BED_SIZE),
		    "RELEASE failed");
	gtdp_assert_pinned(bed->fd, bed->rest);
	gtdp_build_ok(bed->fd, GPA, GTDP_BED_SIZE, 0, 0);
	gtdp_assert_pinned(bed->fd, all);

	/* ...with the slot... */
	vm_set_user_memory_region(bed->vm, SLOT, 0, GPA, 0, NULL);
	gtdp_assert_pinned(bed->fd, bed->rest);
	vm_set_user_memory_region(bed->vm, SLOT, 0, GPA, GTDP_BED_SIZE,
				  bed->mem);
	gtdp_build_ok(bed->fd, GPA, GTDP_BED_SIZE, 0, 0);
	gtdp_assert_pinned(bed->fd, all);

	/* ...with the handle; and the guest goes on. */
	close(bed->fd);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	gtdp_touch(bed->vcpu, GPA, GTDP_BED_SIZE);
	bed->fd = gtdp_attach(bed->vm, 0);
	gtdp_assert_pinned(bed->fd, 0);
	gtdp_build_ok(bed->fd, 0, bed->rest, 0, 0);
	gtdp_build_ok(bed->fd, GPA, GTDP_BED_SIZE, 0, 0);
	gtdp_assert_pinned(bed->fd, all);
	gtdp_bed_coherent(bed, 0, GTDP_BED_SIZE);
	return NULL;
}

static const char *test_release(void)
{
	return gtdp_bed_each(GTDP_MEM_ANY, 0, check_release);
}

/* A VMM of its own, which is built from here, and ends as it is told to. */
static void owner(int sock, bool huge, bool unmap_first)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = gtdp_vm_create(&vcpu);
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	gtdp_add_memory(vm, huge ? VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB :
				   VM_MEM_SRC_ANONYMOUS, GPA, SLOT, SIZE);
	gtdp_touch(vcpu, GPA, SIZE);
	TEST_ASSERT(!gtdp_send_fd(sock, vm->fd), "no fd sent");
	if (read(sock, &c, 1) != 1)
		_exit(1);
	if (unmap_first)
		munmap(addr_gpa2hva(vm, GPA), SIZE);
	if (write(sock, "", 1) != 1 || read(sock, &c, 1) != 1)
		_exit(1);
	_exit(0);
}

/* The handle stays open, and the VM's fd, too: neither holds a page. */
static void check_owner_ends(bool huge, bool killed, bool unmap_first)
{
	u64 hugepages = gtdp_free_hugepages(SZ_2M);
	struct kvm_gtdp_stats stats;
	int socks[2], vm_fd, dev_fd, fd, status;
	pid_t pid;
	char c;

	TEST_ASSERT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks),
		    "socketpair() failed: %i", errno);
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid)
		owner(socks[1], huge, unmap_first);
	close(socks[1]);
	vm_fd = gtdp_recv_fd(socks[0]);
	dev_fd = gtdp_open();
	fd = __gtdp_attach(dev_fd, vm_fd, 0);
	TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
	TEST_ASSERT(!gtdp_build_slots(fd), "BUILD failed");
	stats = gtdp_stats(fd);
	TEST_ASSERT(stats.pinned_bytes > SIZE, "nothing is pinned");
	/* Of the owner, and not of whoever builds. */
	TEST_ASSERT_EQ(gtdp_vm_pin(pid), stats.pinned_bytes);
	TEST_ASSERT_EQ(gtdp_own_pin(), 0);

	TEST_ASSERT(write(socks[0], "", 1) == 1 && read(socks[0], &c, 1) == 1,
		    "the owner has gone");
	if (unmap_first) {
		TEST_ASSERT_EQ(gtdp_stats(fd).pinned_bytes,
			       stats.pinned_bytes - SIZE);
		TEST_ASSERT_EQ(gtdp_vm_pin(pid), stats.pinned_bytes - SIZE);
	}
	if (killed)
		kill(pid, SIGKILL);
	else
		TEST_ASSERT(write(socks[0], "", 1) == 1, "the owner has gone");
	TEST_ASSERT(waitpid(pid, &status, 0) == pid, "waitpid() failed");
	TEST_ASSERT(gtdp_wait_hup(fd, WAIT_MSECS), "no POLLHUP");
	if (huge)
		TEST_ASSERT(gtdp_wait_free_hugepages(SZ_2M, hugepages,
						     WAIT_MSECS),
			    "%lu huge pages were free, %lu are now", hugepages,
			    gtdp_free_hugepages(SZ_2M));
	TEST_ASSERT(__kvm_ioctl(fd, KVM_GTDP_STATS, &stats) == -1 &&
		    errno == ESRCH, "STATS of a VM that has gone: %i", errno);
	close(fd);
	close(vm_fd);
	close(dev_fd);
	close(socks[0]);
}

static const char *test_owner(void)
{
	bool huge = gtdp_free_hugepages(SZ_2M) >= SIZE / SZ_2M;
	u64 unused;
	int i;

	/* What is free goes up and down by some 30M; this is 256M or more. */
	check_owner_ends(false, true, false);
	unused = unused_memory();
	for (i = 0; i < 32; i++)
		if (!(i & 1) || huge)
			check_owner_ends(i & 1, i & 2, i & 4);
	for (i = 0; i < 50 && unused_memory() + SZ_128M < unused; i++)
		usleep(100 * 1000);
	TEST_ASSERT(unused_memory() + SZ_128M >= unused,
		    "%lu bytes were available, %lu are now", unused,
		    unused_memory());
	return huge ? NULL : "2M part needs 8 free huge pages of 2M";
}

/* Many times over: what leaks a page each time would be seen. */
static const char *test_leak(void)
{
	u64 hugepages = gtdp_free_hugepages(SZ_2M);
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int i, j, fd;
	u8 *mem;

	if (hugepages < SIZE / SZ_2M)
		return "needs 8 free huge pages of 2M";

	for (i = 0; i < 10; i++) {
		vm = gtdp_create_built(&vcpu, &fd,
				       VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, SIZE);
		mem = addr_gpa2hva(vm, GPA);
		for (j = 0; j < 10; j++) {
			madvise(mem + j % 8 * SZ_2M, SZ_2M, MADV_DONTNEED);
			gtdp_build_ok(fd, GPA, SIZE, 0, j % 2 ? 1 : 0);
			gtdp_build_ok(fd, GPA + SZ_1M, SZ_4M, 0, 0);
			gtdp_release(fd, GPA + j * SZ_1M, SZ_2M);
		}
		close(fd);
		TEST_ASSERT_EQ(gtdp_own_pin(), 0);
		kvm_vm_free(vm);
		TEST_ASSERT(gtdp_wait_free_hugepages(SZ_2M, hugepages,
						     WAIT_MSECS),
			    "%lu huge pages were free, %lu are now", hugepages,
			    gtdp_free_hugepages(SZ_2M));
	}
	return NULL;
}

/* Run by somebody without CAP_IPC_LOCK, whose limit counts. */
static void limited(int sock, u64 limit)
{
	struct rlimit rlim = { .rlim_cur = limit, .rlim_max = limit };
	int dev_fd = gtdp_open(), vm_fd = gtdp_recv_fd(sock), fd;
	u64 gpa = GPA, size = SIZE;
	int ret;

	if (setrlimit(RLIMIT_MEMLOCK, &rlim) || setgid(65534) || setuid(65534))
		_exit(2);
	fd = __gtdp_attach(dev_fd, vm_fd, 0);
	if (fd < 0)
		_exit(3);
	do {
		ret = __gtdp_build(fd, &gpa, &size, 0, 0);
	} while (size && (!ret || ret == -EAGAIN || ret == -EINTR));

	/* As far as it could, and said so. */
	if (gtdp_stats(fd).pinned_bytes > limit || gpa - GPA > limit)
		_exit(4);
	if (limit < SIZE ? ret != -ENOMEM : ret != 0)
		_exit(5);
	/* Without pins there is no limit. */
	if (gtdp_build(fd, GPA, SIZE, KVM_GTDP_BUILD_NOPIN, 0))
		_exit(6);
	_exit(0);
}

static const char *test_limit(void)
{
	static const u64 limits[] = { 0, SZ_4M, SIZE - PAGE_SIZE, SIZE };
	int i, socks[2], status;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	pid_t pid;

	if (geteuid())
		return "needs root";

	vm = gtdp_vm_create(&vcpu);
	gtdp_add_memory(vm, VM_MEM_SRC_SHMEM, GPA, SLOT, SIZE);
	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		TEST_ASSERT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks),
			    "socketpair() failed: %i", errno);
		pid = fork();
		if (!pid)
			limited(socks[1], limits[i]);
		TEST_ASSERT(!gtdp_send_fd(socks[0], vm->fd), "no fd sent");
		TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
			    "limit 0x%lx: status 0x%x", limits[i], status);
		close(socks[0]);
		close(socks[1]);
		TEST_ASSERT_EQ(gtdp_own_pin(), 0);
	}
	kvm_vm_free(vm);
	return NULL;
}

/* Pins for long are refused where the file system must know of writes. */
static const char *test_file(void)
{
	char path[] = "gtdp-test.XXXXXX";
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct statfs fs;
	int fd, file = mkstemp(path);
	u8 *mem;

	if (file < 0)
		return "no file can be made here";
	unlink(path);
	TEST_ASSERT(!fstatfs(file, &fs) && !ftruncate(file, SZ_4M),
		    "errno: %i", errno);
	if (fs.f_type != 0xef53) {
		close(file);
		return "this is no ext4";
	}
	mem = mmap(NULL, SZ_4M, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	TEST_ASSERT(mem != MAP_FAILED, "mmap() failed, errno: %i", errno);
	memset(mem, 1, SZ_4M);
	vm = gtdp_vm_create(&vcpu);
	vm_set_user_memory_region(vm, SLOT, 0, GPA, SZ_4M, mem);
	virt_map_level(vm, GPA, GPA, SZ_4M, PG_LEVEL_2M);
	fd = gtdp_attach(vm, 0);
	TEST_ASSERT_EQ(gtdp_build(fd, GPA, SZ_4M, 0, 0), -EOPNOTSUPP);
	gtdp_assert_pinned(fd, 0);
	gtdp_touch(vcpu, GPA, SZ_4M);

	close(fd);
	kvm_vm_free(vm);
	munmap(mem, SZ_4M);
	close(file);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "property 3: pins go with release, slot and handle", test_release },
	{ "property 3: pins go with the owner, handle open", test_owner },
	{ "property 3: no page reference is leaked", test_leak },
	{ "property 3: pins are limited by RLIMIT_MEMLOCK", test_limit },
	{ "property 3: pins are for long", test_file },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
