// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fuzzer's VMs: a slot with a few instructions of code, vCPUs that write here
 * and there, and slots that come and go.  No call of KVM is expected to succeed.
 */
#include "gtdp_fuzz.h"

#define CODE_SLOT	FUZZ_SLOTS
#define CODE_SIZE	SZ_64K
#define CODE_GPA	0x1000
#define RING_ENTRIES	1024
#define RUNS		4

/* 32 bits, flat: write (%edx) words into pages of (%esi) by mask (%ebp), tell, go on. */
asm(".pushsection .rodata\n"
	".code32\n"
	"fuzz_guest:\n"
	"1:	movl %edx, %ecx\n"
	"2:	imull $1664525, %ebx, %ebx\n"
	"	addl $1013904223, %ebx\n"
	"	movl %ebx, %eax\n"
	"	shrl $3, %eax\n"
	"	andl %ebp, %eax\n"
	"	movl %ebx, (%esi, %eax)\n"
	"	decl %ecx\n"
	"	jnz 2b\n"
	"	outb %al, $0xe9\n"
	"	jmp 1b\n"
	"fuzz_guest_end:\n"
	".code64\n"
	".popsection");

static char *fuzz_memory;	/* of all VMs: a fixed place for each slot */
static char *fuzz_code;

void *fuzz_mem(int vm, int slot)
{
	return fuzz_memory + ((u64)vm * FUZZ_SLOTS + slot) * FUZZ_SLOT_MAX;
}

/* Takes @fd over. */
void fuzz_set_fd(int fd, int number)
{
	TEST_ASSERT(fd >= 0 && dup3(fd, number, O_CLOEXEC) == number,
		    "no file for %d, errno: %i", number, errno);
	close(fd);
}

static int memory_file(bool huge)
{
	int fd = memfd_create("gtdp-fuzz", MFD_CLOEXEC | (huge ? MFD_HUGETLB : 0));

	if (fd >= 0 && ftruncate(fd, (u64)FUZZ_SLOTS * FUZZ_SLOT_MAX)) {
		close(fd);
		fd = -1;
	}
	return fd >= 0 ? fd : open("/dev/null", O_RDWR | O_CLOEXEC);
}

void fuzz_open(void)
{
	u64 size = (u64)FUZZ_VMS * FUZZ_SLOTS * FUZZ_SLOT_MAX;
	int vm, i;

	fuzz_memory = mmap(NULL, size + FUZZ_SLOT_MAX, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	fuzz_code = mmap(NULL, CODE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
	TEST_ASSERT(fuzz_memory != MAP_FAILED && fuzz_code != MAP_FAILED,
		    "mmap() failed, errno: %i", errno);
	fuzz_memory = (char *)round_up((uintptr_t)fuzz_memory, FUZZ_SLOT_MAX);
	memcpy(fuzz_code + CODE_GPA, fuzz_guest, fuzz_guest_end - fuzz_guest);

	for (vm = 0; vm < FUZZ_VMS; vm++) {
		for (i = 0; i < FUZZ_FDS; i++)
			fuzz_set_fd(open("/dev/null", O_RDWR | O_CLOEXEC), fuzz_handle_fd(vm) + i);
		fuzz_set_fd(memory_file(false), fuzz_mem_fd(vm, false));
		fuzz_set_fd(memory_file(true), fuzz_mem_fd(vm, true));
	}
}

static void set_region(int vm_fd, u32 slot, u32 flags, u64 gpa, u64 size, void *mem)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.flags = flags,
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = (uintptr_t)mem,
	};

	ioctl(vm_fd, KVM_SET_USER_MEMORY_REGION, &region);
}

static void enable_cap(int vm_fd, u32 cap, u64 arg)
{
	struct kvm_enable_cap enable = { .cap = cap, .args = { arg } };

	ioctl(vm_fd, KVM_ENABLE_CAP, &enable);
}

static void configure_vm(struct fuzz_worker *w, struct fuzz_vm *v, int vm_fd)
{
	u64 identity = 0xfffbc000;

	ioctl(vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity);
	ioctl(vm_fd, KVM_SET_TSS_ADDR, 0xfffbd000);
	if (fuzz_percent(w, 50))
		ioctl(vm_fd, KVM_CREATE_IRQCHIP, 0);
	if (fuzz_percent(w, 30))
		enable_cap(vm_fd, KVM_CAP_DISABLE_QUIRKS2, KVM_X86_QUIRK_SLOT_ZAP_ALL);
	if (fuzz_percent(w, 20))
		enable_cap(vm_fd, KVM_CAP_VM_DISABLE_NX_HUGE_PAGES, 0);

	v->ring = fuzz_percent(w, 30);
	if (v->ring)
		enable_cap(vm_fd, KVM_CAP_DIRTY_LOG_RING,
			   RING_ENTRIES * sizeof(struct kvm_dirty_gfn));
	else if (fuzz_percent(w, 50))
		enable_cap(vm_fd, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, 1 + 2 * fuzz_percent(w, 50));
}

static int new_vcpu(int vm_fd, int id)
{
	struct kvm_segment data = {
		.limit = ~0u, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1,
	};
	struct kvm_segment code = data;
	struct kvm_regs regs = { .rip = CODE_GPA, .rflags = 2, .rdx = 100 };
	/* With an APIC, all but the first would wait for somebody to start them. */
	struct kvm_mp_state state = { .mp_state = KVM_MP_STATE_RUNNABLE };
	struct kvm_sregs sregs;
	int fd;

	fd = ioctl(vm_fd, KVM_CREATE_VCPU, id);
	if (fd < 0)
		return open("/dev/null", O_RDWR | O_CLOEXEC);

	code.type = 11;
	ioctl(fd, KVM_GET_SREGS, &sregs);
	sregs.cs = code;
	sregs.ds = data;
	sregs.es = data;
	sregs.fs = data;
	sregs.gs = data;
	sregs.ss = data;
	sregs.cr0 |= X86_CR0_PE;
	ioctl(fd, KVM_SET_SREGS, &sregs);
	ioctl(fd, KVM_SET_REGS, &regs);
	ioctl(fd, KVM_SET_MP_STATE, &state);
	return fd;
}

int fuzz_vm_new(struct fuzz_worker *w, int vm)
{
	struct fuzz_vm *v = &fuzz->vms[vm];
	int i, vm_fd, kvm_fd;

	if (pthread_mutex_trylock(&v->life))
		return -EBUSY;
	if (v->there) {
		pthread_mutex_unlock(&v->life);
		return -EEXIST;
	}

	kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm_fd = ioctl(kvm_fd, KVM_CREATE_VM, 0);
	TEST_ASSERT(vm_fd >= 0, "KVM_CREATE_VM failed, errno: %i", errno);
	close(kvm_fd);

	configure_vm(w, v, vm_fd);
	set_region(vm_fd, CODE_SLOT, 0, 0, CODE_SIZE, fuzz_code);
	for (i = 0; i < FUZZ_VCPUS; i++)
		fuzz_set_fd(new_vcpu(vm_fd, i), fuzz_vcpu_fd(vm, i));
	memset(v->slots, 0, sizeof(v->slots));
	v->there = true;
	fuzz_set_fd(vm_fd, fuzz_vm_fd(vm));
	pthread_mutex_unlock(&v->life);
	return 0;
}

int fuzz_vm_end(struct fuzz_worker *w, int vm)
{
	struct fuzz_vm *v = &fuzz->vms[vm];
	int i;

	if (pthread_mutex_trylock(&v->life))
		return -EBUSY;
	for (i = 0; i < FUZZ_VCPUS; i++)
		fuzz_set_fd(open("/dev/null", O_RDWR | O_CLOEXEC), fuzz_vcpu_fd(vm, i));
	fuzz_set_fd(open("/dev/null", O_RDWR | O_CLOEXEC), fuzz_vm_fd(vm));
	v->there = false;
	pthread_mutex_unlock(&v->life);
	return 0;
}

/* Most are small: all VMs together must fit into a small host. */
static u64 random_size(struct fuzz_worker *w)
{
	u32 p = gtdp_below(&w->rng, 100);

	if (p < 35)
		return (u64)PAGE_SIZE << gtdp_below(&w->rng, 9);
	if (p < 55)
		return PAGE_SIZE * (1 + gtdp_below(&w->rng, SZ_4M / PAGE_SIZE));
	if (p < 97)
		return (u64)SZ_2M * (1 + gtdp_below(&w->rng, 8));
	return FUZZ_SLOT_MAX;
}

static u64 random_gpa(struct fuzz_worker *w)
{
	u64 gpa = (1 + gtdp_below(&w->rng, 24)) * (u64)SZ_64M;

	if (fuzz_percent(w, 20))
		gpa += gtdp_below(&w->rng, SZ_4M / PAGE_SIZE) * PAGE_SIZE;
	if (fuzz_percent(w, 10))
		gpa += SZ_4G;
	return gpa;
}

static u32 random_flags(struct fuzz_worker *w)
{
	return (fuzz_percent(w, 10) ? KVM_MEM_READONLY : 0) |
	       (fuzz_percent(w, 25) ? KVM_MEM_LOG_DIRTY_PAGES : 0);
}

static int change_slot(struct fuzz_worker *w, int vm, int i, struct fuzz_slot new, void *mem)
{
	struct kvm_userspace_memory_region region = {
		.slot = i,
		.flags = new.flags,
		.guest_phys_addr = new.gpa,
		.memory_size = new.size,
		.userspace_addr = (uintptr_t)mem,
	};
	int ret;

	w->now->arg[0] = i;
	w->now->arg[1] = new.gpa;
	w->now->arg[2] = new.size;
	w->now->arg[3] = new.flags;
	ret = ioctl(fuzz_vm_fd(vm), KVM_SET_USER_MEMORY_REGION, &region);
	if (ret)
		return -errno;
	fuzz->vms[vm].slots[i] = new;
	return 0;
}

int fuzz_slot_set(struct fuzz_worker *w, int vm)
{
	int i = gtdp_below(&w->rng, FUZZ_SLOTS);
	struct fuzz_slot new = {
		.gpa = random_gpa(w),
		.size = random_size(w),
		.flags = random_flags(w),
		.backing = gtdp_below(&w->rng, FUZZ_NR_BACKINGS),
	};
	void *mem = fuzz_mem(vm, i);

	if (fuzz->vms[vm].slots[i].size)
		return -EEXIST;
	/* Sometimes the memory of another slot, or the same in part. */
	if (fuzz_percent(w, 10))
		mem = fuzz_mem(vm, gtdp_below(&w->rng, FUZZ_SLOTS));
	else
		fuzz_map(w, vm, i, new.backing, new.size);
	return change_slot(w, vm, i, new, mem);
}

int fuzz_slot_delete(struct fuzz_worker *w, int vm)
{
	int i = fuzz_pick_slot(w, vm);

	return change_slot(w, vm, i, (struct fuzz_slot) {}, fuzz_mem(vm, i));
}

int fuzz_slot_move(struct fuzz_worker *w, int vm)
{
	int i = fuzz_pick_slot(w, vm);
	struct fuzz_slot new = fuzz->vms[vm].slots[i];

	if (!new.size)
		return -ENOENT;
	new.gpa = random_gpa(w);
	return change_slot(w, vm, i, new, fuzz_mem(vm, i));
}

int fuzz_slot_flags(struct fuzz_worker *w, int vm)
{
	int i = fuzz_pick_slot(w, vm);
	struct fuzz_slot new = fuzz->vms[vm].slots[i];

	if (!new.size)
		return -ENOENT;
	/* KVM refuses to change READONLY. */
	new.flags = (new.flags & KVM_MEM_READONLY) | (random_flags(w) & KVM_MEM_LOG_DIRTY_PAGES);
	return change_slot(w, vm, i, new, fuzz_mem(vm, i));
}

int fuzz_dirty_get(struct fuzz_worker *w, int vm)
{
	u64 bitmap[FUZZ_SLOT_MAX / PAGE_SIZE / 64];
	struct kvm_dirty_log log = {
		.slot = fuzz_pick_slot(w, vm),
		.dirty_bitmap = bitmap,
	};

	return ioctl(fuzz_vm_fd(vm), KVM_GET_DIRTY_LOG, &log) ? -errno : 0;
}

int fuzz_dirty_clear(struct fuzz_worker *w, int vm)
{
	u64 bitmap[FUZZ_SLOT_MAX / PAGE_SIZE / 64];
	struct kvm_clear_dirty_log log = {
		.slot = fuzz_pick_slot(w, vm),
		.dirty_bitmap = bitmap,
	};
	u32 pages = fuzz->vms[vm].slots[log.slot].size / PAGE_SIZE;

	if (pages > 64 && fuzz_percent(w, 50))
		log.first_page = gtdp_below(&w->rng, pages / 64) * 64;
	log.num_pages = pages - log.first_page;
	memset(bitmap, guest_random_u32(&w->rng), sizeof(bitmap));
	return ioctl(fuzz_vm_fd(vm), KVM_CLEAR_DIRTY_LOG, &log) ? -errno : 0;
}

/* Take all entries of a ring, and have the pages protected again. */
int fuzz_dirty_reset(struct fuzz_worker *w, int vm)
{
	size_t size = RING_ENTRIES * sizeof(struct kvm_dirty_gfn);
	int fd = fuzz_vcpu_fd(vm, gtdp_below(&w->rng, FUZZ_VCPUS));
	struct kvm_dirty_gfn *ring;
	int i, ret;

	ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    KVM_DIRTY_LOG_PAGE_OFFSET * PAGE_SIZE);
	if (ring == MAP_FAILED)
		return -errno;
	for (i = 0; i < RING_ENTRIES && fuzz->vms[vm].ring; i++) {
		if (READ_ONCE(ring[i].flags) == KVM_DIRTY_GFN_F_DIRTY)
			WRITE_ONCE(ring[i].flags, KVM_DIRTY_GFN_F_RESET);
	}
	munmap(ring, size);
	ret = ioctl(fuzz_vm_fd(vm), KVM_RESET_DIRTY_RINGS);
	return ret < 0 ? -errno : 0;
}

int fuzz_run(struct fuzz_worker *w, int vm)
{
	struct fuzz_slot *slot = &fuzz->vms[vm].slots[fuzz_pick_slot(w, vm)];
	int i, ret = 0, fd = fuzz_vcpu_fd(vm, gtdp_below(&w->rng, FUZZ_VCPUS));
	u64 gpa = slot->gpa, size = slot->size;
	struct kvm_regs regs;

	if (ioctl(fd, KVM_GET_REGS, &regs))
		return -errno;
	if (size && gpa < SZ_2G) {
		regs.rsi = gpa;
		/* The largest power of two that fits, whole words. */
		regs.rbp = (1ull << (63 - __builtin_clzll(size))) - 4;
	}
	regs.rdx = 1 + gtdp_below(&w->rng, 3000);
	ioctl(fd, KVM_SET_REGS, &regs);
	w->now->arg[0] = regs.rsi;
	w->now->arg[1] = regs.rbp;

	for (i = 0; i < RUNS && !ret; i++)
		ret = ioctl(fd, KVM_RUN, 0) ? -errno : 0;
	return ret;
}
