/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Helpers for the tests of /dev/kvm-gtdp, KVM's global TDP mappings.
 */
#ifndef SELFTEST_KVM_GTDP_H
#define SELFTEST_KVM_GTDP_H

#include <linux/kvm_gtdp.h>
#include <linux/sizes.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

#define GTDP_DEV_PATH	"/dev/kvm-gtdp"

/* Where the tests put their memory: clear of the library's slot 0. */
#define GTDP_TEST_GPA	SZ_4G
#define GTDP_TEST_SLOT	10

/* Longer than any single case takes, shorter than a test runner's patience. */
#define GTDP_CASE_SECONDS	120

struct gtdp_case {
	const char *name;
	/* Returns NULL, or why the case cannot be tried on this host. */
	const char *(*run)(void);
};

int gtdp_open(void);
void gtdp_get_info(struct kvm_gtdp_info *info);
int gtdp_main(int argc, char *argv[], const struct gtdp_case *cases, int nr);

int __gtdp_attach(int dev_fd, int vm_fd, u32 flags);
int gtdp_attach(struct kvm_vm *vm, u32 flags);

int __gtdp_build(int fd, u64 *gpa, u64 *size, u32 flags,
		 u32 max_level);
int gtdp_build(int fd, u64 gpa, u64 size, u32 flags,
	       u32 max_level);
void gtdp_build_ok(int fd, u64 gpa, u64 size, u32 flags,
		   u32 max_level);
int gtdp_build_slots(int fd);
int gtdp_release(int fd, u64 gpa, u64 size);
struct kvm_gtdp_stats gtdp_stats(int fd);
bool gtdp_wait_hup(int fd, int msecs);

u64 gtdp_vm_pin(pid_t pid);
u64 gtdp_free_hugepages(size_t page_size);
bool gtdp_wait_free_hugepages(size_t page_size, u64 nr, int msecs);
u64 gtdp_vcpu_stat(struct kvm_vcpu *vcpu, const char *name);

struct kvm_vm *gtdp_vm_create(struct kvm_vcpu **vcpu);
void gtdp_add_memory(struct kvm_vm *vm, enum vm_mem_backing_src_type src,
		     u64 gpa, u32 slot, u64 size);
void gtdp_guest_touch(void);
void gtdp_set_touch(struct kvm_vcpu *vcpu, u64 gpa, u64 size);
void gtdp_touch(struct kvm_vcpu *vcpu, u64 gpa, u64 size);

u64 gtdp_own_pin(void);
void gtdp_assert_built(int fd, u64 bytes);
void gtdp_assert_pinned(int fd, u64 bytes);
void gtdp_assert_free_touch(int fd, struct kvm_vcpu *vcpu, u64 gpa,
			    u64 size);
void gtdp_assert_content(struct kvm_vm *vm, u64 gpa, u64 size,
			 u64 want);
u64 gtdp_slot0_size(struct kvm_vm *vm);
struct kvm_vm *gtdp_create_built(struct kvm_vcpu **vcpu, int *fd,
				 enum vm_mem_backing_src_type src,
				 u64 size);

int gtdp_send_fd(int sock, int fd);
int gtdp_recv_fd(int sock);

#endif /* SELFTEST_KVM_GTDP_H */
