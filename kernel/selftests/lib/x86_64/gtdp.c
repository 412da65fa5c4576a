// SPDX-License-Identifier: GPL-2.0-only
/*
 * Helpers for the tests of /dev/kvm-gtdp, KVM's global TDP mappings.
 */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "gtdp.h"
#include "ucall_common.h"

/* What gtdp_guest_touch() is to write to; set through gtdp_touch(). */
static struct {
	u64 gva;
	u64 size;
} gtdp_guest_range;

int gtdp_open(void)
{
	return open(GTDP_DEV_PATH, O_RDWR | O_CLOEXEC);
}

void gtdp_get_info(struct kvm_gtdp_info *info)
{
	int fd = gtdp_open();

	TEST_ASSERT(fd >= 0, "open(%s) failed, errno: %i (%s)", GTDP_DEV_PATH,
		    errno, strerror(errno));
	memset(info, 0xff, sizeof(*info));
	kvm_ioctl(fd, KVM_GTDP_GET_INFO, info);
	close(fd);
}

int __gtdp_attach(int dev_fd, int vm_fd, u32 flags)
{
	struct kvm_gtdp_attach attach = {
		.vm_fd = vm_fd,
		.flags = flags,
	};

	return __kvm_ioctl(dev_fd, KVM_GTDP_ATTACH, &attach);
}

int gtdp_attach(struct kvm_vm *vm, u32 flags)
{
	int dev_fd = gtdp_open();
	int fd;

	TEST_ASSERT(dev_fd >= 0, "open(%s) failed, errno: %i (%s)",
		    GTDP_DEV_PATH, errno, strerror(errno));
	fd = __gtdp_attach(dev_fd, vm->fd, flags);
	TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GTDP_ATTACH, fd));
	close(dev_fd);
	return fd;
}

/* One call.  Returns 0 or a negative errno, with the range advanced. */
int __gtdp_build(int fd, u64 *gpa, u64 *size, u32 flags,
		 u32 max_level)
{
	struct kvm_gtdp_range range = {
		.gpa = *gpa,
		.size = *size,
		.flags = flags,
		.max_level = max_level,
	};
	int ret = __kvm_ioctl(fd, KVM_GTDP_BUILD, &range);
	int err = ret ? -errno : 0;

	TEST_ASSERT(range.size <= *size &&
		    range.gpa + range.size == *gpa + *size,
		    "BUILD moved the end of [0x%lx, +0x%lx): [0x%llx, +0x%llx)",
		    *gpa, *size, range.gpa, range.size);
	TEST_ASSERT(!range.reserved[0] && !range.reserved[1],
		    "BUILD wrote to reserved fields");
	*gpa = range.gpa;
	*size = range.size;
	return err;
}

/* As a user calls it: again until done, or until an error that lasts. */
int gtdp_build(int fd, u64 gpa, u64 size, u32 flags,
	       u32 max_level)
{
	int ret;

	do {
		ret = __gtdp_build(fd, &gpa, &size, flags, max_level);
	} while (size && (!ret || ret == -EINTR || ret == -EAGAIN));

	return ret;
}

void gtdp_build_ok(int fd, u64 gpa, u64 size, u32 flags,
		   u32 max_level)
{
	int ret = gtdp_build(fd, gpa, size, flags, max_level);

	TEST_ASSERT(!ret, "BUILD [0x%lx, +0x%lx) failed: %i (%s)", gpa, size,
		    ret, strerror(-ret));
}

/* Build all there is.  Returns 0 or the first negative errno. */
int gtdp_build_slots(int fd)
{
	struct kvm_gtdp_slot slots[64];
	struct kvm_gtdp_slots req = {
		.count = ARRAY_SIZE(slots),
		.slots = (uintptr_t)slots,
	};
	int i, ret;

	if (__kvm_ioctl(fd, KVM_GTDP_GET_SLOTS, &req))
		return -errno;

	for (i = 0; i < req.count; i++) {
		ret = gtdp_build(fd, slots[i].gpa, slots[i].size, 0, 0);
		if (ret)
			return ret;
	}
	return 0;
}

int gtdp_release(int fd, u64 gpa, u64 size)
{
	struct kvm_gtdp_range range = {
		.gpa = gpa,
		.size = size,
	};
	int ret;

	do {
		ret = __kvm_ioctl(fd, KVM_GTDP_RELEASE, &range) ? -errno : 0;
	} while (range.size && (!ret || ret == -EINTR || ret == -EAGAIN));

	return ret;
}

struct kvm_gtdp_stats gtdp_stats(int fd)
{
	struct kvm_gtdp_stats stats;

	memset(&stats, 0xff, sizeof(stats));
	kvm_ioctl(fd, KVM_GTDP_STATS, &stats);
	return stats;
}

bool gtdp_wait_hup(int fd, int msecs)
{
	struct pollfd pfd = { .fd = fd };
	int ret = poll(&pfd, 1, msecs);

	TEST_ASSERT(ret >= 0, "poll() failed, errno: %i", errno);
	return pfd.revents & POLLHUP;
}

/* VmPin of a process, in bytes. */
u64 gtdp_vm_pin(pid_t pid)
{
	char path[64], line[256];
	u64 kbytes = -1ull;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	TEST_ASSERT(file, "fopen(%s) failed, errno: %i", path, errno);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "VmPin: %lu kB", &kbytes) == 1)
			break;
	}
	fclose(file);
	TEST_ASSERT(kbytes != -1ull, "no VmPin in %s", path);
	return kbytes * SZ_1K;
}

/* Free pages that nobody has reserved; 0 if the host lacks the size. */
u64 gtdp_free_hugepages(size_t page_size)
{
	static const char * const names[] = { "free", "resv" };
	u64 nr[2] = {};
	char path[128];
	FILE *file;
	int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path),
			 "/sys/kernel/mm/hugepages/hugepages-%zukB/%s_hugepages",
			 page_size / SZ_1K, names[i]);
		file = fopen(path, "re");
		if (!file)
			return 0;
		TEST_ASSERT(fscanf(file, "%lu", &nr[i]) == 1,
			    "no number in %s", path);
		fclose(file);
	}
	return nr[0] - nr[1];
}

bool gtdp_wait_free_hugepages(size_t page_size, u64 nr, int msecs)
{
	for (; msecs > 0; msecs -= 10) {
		if (gtdp_free_hugepages(page_size) == nr)
			return true;
		usleep(10 * 1000);
	}
	return false;
}

u64 gtdp_vcpu_stat(struct kvm_vcpu *vcpu, const char *name)
{
	struct kvm_stats_header header;
	struct kvm_stats_desc *descs, *desc;
	u64 value = 0;
	bool found = false;
	int fd, i;

	fd = vcpu_get_stats_fd(vcpu);
	read_stats_header(fd, &header);
	descs = read_stats_descriptors(fd, &header);
	for (i = 0; i < header.num_desc && !found; i++) {
		desc = get_stats_descriptor(descs, i, &header);
		if (strcmp(desc->name, name))
			continue;
		read_stat_data(fd, &header, desc, &value, 1);
		found = true;
	}
	TEST_ASSERT(found, "no vCPU statistic \"%s\"", name);
	free(descs);
	close(fd);
	return value;
}

/* Guest: add one to the first word of each page of the range, for each run. */
void gtdp_guest_touch(void)
{
	u64 gva;

	for (;;) {
		for (gva = READ_ONCE(gtdp_guest_range.gva);
		     gva < gtdp_guest_range.gva + gtdp_guest_range.size;
		     gva += PAGE_SIZE)
			WRITE_ONCE(*(u64 *)gva,
				   READ_ONCE(*(u64 *)gva) + 1);
		GUEST_SYNC(0);
	}
}

/* For the next run. */
void gtdp_set_touch(struct kvm_vcpu *vcpu, u64 gpa, u64 size)
{
	gtdp_guest_range.gva = gpa;
	gtdp_guest_range.size = size;
	sync_global_to_guest(vcpu->vm, gtdp_guest_range);
}

void gtdp_touch(struct kvm_vcpu *vcpu, u64 gpa, u64 size)
{
	struct ucall uc;

	gtdp_set_touch(vcpu, gpa, size);
	vcpu_run(vcpu);
	TEST_ASSERT_KVM_EXIT_REASON(vcpu, KVM_EXIT_IO);
	TEST_ASSERT_EQ(get_ucall(vcpu, &uc), UCALL_SYNC);
}

struct kvm_vm *gtdp_vm_create(struct kvm_vcpu **vcpu)
{
	return vm_create_with_one_vcpu(vcpu, gtdp_guest_touch);
}

/* A slot that the guest sees at the same virtual address. */
void gtdp_add_memory(struct kvm_vm *vm, enum vm_mem_backing_src_type src,
		     u64 gpa, u32 slot, u64 size)
{
	vm_userspace_mem_region_add(vm, src, gpa, slot, size / PAGE_SIZE, 0);
	virt_map_level(vm, gpa, gpa, size, PG_LEVEL_2M);
}

u64 gtdp_own_pin(void)
{
	return gtdp_vm_pin(getpid());
}

void gtdp_assert_built(int fd, u64 bytes)
{
	struct kvm_gtdp_stats stats = gtdp_stats(fd);

	TEST_ASSERT_EQ(stats.built_bytes, bytes);
	TEST_ASSERT_EQ(stats.mapped_bytes, bytes);
	TEST_ASSERT_EQ(stats.hole_bytes, 0);
	TEST_ASSERT_EQ(stats.leaves[1] * SZ_4K + stats.leaves[2] * SZ_2M +
		       stats.leaves[3] * SZ_1G, bytes);
}

void gtdp_assert_pinned(int fd, u64 bytes)
{
	TEST_ASSERT_EQ(gtdp_stats(fd).pinned_bytes, bytes);
	TEST_ASSERT_EQ(gtdp_own_pin(), bytes);
}

/* The guest writes to all of the range, and KVM has nothing to do with it. */
void gtdp_assert_free_touch(int fd, struct kvm_vcpu *vcpu, u64 gpa,
			    u64 size)
{
	u64 taken = gtdp_vcpu_stat(vcpu, "pf_taken");
	u64 faults = gtdp_stats(fd).faults;

	gtdp_touch(vcpu, gpa, size);
	TEST_ASSERT_EQ(gtdp_stats(fd).faults - faults, 0);
	TEST_ASSERT_EQ(gtdp_vcpu_stat(vcpu, "pf_taken") - taken, 0);
}

/* All of the guest's writes are where the owner looks for them. */
void gtdp_assert_content(struct kvm_vm *vm, u64 gpa, u64 size,
			 u64 want)
{
	u64 off;

	for (off = 0; off < size; off += PAGE_SIZE) {
		u64 *word = addr_gpa2hva(vm, gpa + off);

		TEST_ASSERT(*word == want, "0x%lx: %lu, expected %lu",
			    gpa + off, *word, want);
	}
}

u64 gtdp_slot0_size(struct kvm_vm *vm)
{
	return memslot2region(vm, 0)->region.memory_size;
}

/* A VM with one slot beside the library's, and all of it built. */
struct kvm_vm *gtdp_create_built(struct kvm_vcpu **vcpu, int *fd,
				 enum vm_mem_backing_src_type src,
				 u64 size)
{
	struct kvm_vm *vm = gtdp_vm_create(vcpu);

	gtdp_add_memory(vm, src, GTDP_TEST_GPA, GTDP_TEST_SLOT, size);
	*fd = gtdp_attach(vm, 0);
	gtdp_build_ok(*fd, 0, gtdp_slot0_size(vm), 0, 0);
	gtdp_build_ok(*fd, GTDP_TEST_GPA, size, 0, 0);
	return vm;
}

int gtdp_send_fd(int sock, int fd)
{
	char data = 0, control[CMSG_SPACE(sizeof(fd))] = {};
	struct iovec iov = { .iov_base = &data, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

int gtdp_recv_fd(int sock)
{
	char data, control[CMSG_SPACE(sizeof(int))] = {};
	struct iovec iov = { .iov_base = &data, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg;
	int fd;

	TEST_ASSERT(recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) == 1,
		    "the other process did not send its fd");
	cmsg = CMSG_FIRSTHDR(&msg);
	TEST_ASSERT(cmsg && cmsg->cmsg_type == SCM_RIGHTS, "no fd received");
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

static void gtdp_case_hangs(int sig)
{
	static const char text[] = "# case hangs\n";

	if (write(STDOUT_FILENO, text, sizeof(text) - 1))
		_exit(KSFT_FAIL);
	_exit(KSFT_FAIL);
}

/* Runs all cases, or those that are named on the command line. */
int gtdp_main(int argc, char *argv[], const struct gtdp_case *cases, int nr)
{
	struct kvm_gtdp_info info;
	const char *why;
	int i, j, fd;

	fd = gtdp_open();
	__TEST_REQUIRE(fd >= 0, "%s: %s", GTDP_DEV_PATH, strerror(errno));
	close(fd);
	gtdp_get_info(&info);
	__TEST_REQUIRE(info.mode != KVM_GTDP_MODE_SHADOW,
		       "shadow paging: there is no TDP to build");

	signal(SIGALRM, gtdp_case_hangs);
	setlinebuf(stdout);
	ksft_print_header();
	ksft_set_plan(argc > 1 ? argc - 1 : nr);

	for (i = 0; i < nr; i++) {
		for (j = 1; j < argc; j++) {
			if (!strcmp(argv[j], cases[i].name))
				break;
		}
		if (argc > 1 && j == argc)
			continue;

		alarm(GTDP_CASE_SECONDS);
		why = cases[i].run();
		alarm(0);
		if (why)
			ksft_test_result_skip("%s: %s\n", cases[i].name, why);
		else
			ksft_test_result_pass("%s\n", cases[i].name);
	}
	ksft_finished();
}
