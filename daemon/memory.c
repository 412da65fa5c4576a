/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <numaif.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "bus-error.h"
#include "format.h"
#include "name.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The call cannot be interrupted but at its end, so this bounds how long a cancel takes: 40 ms at 0.2 GiB/s.
 */
#define POPULATE_STEP MIB(8)

/* To ask for each page of 4K takes a noticeable part of the time that zeroing takes. */
#define VERIFY_SAMPLE 64U
#define VERIFY_BATCH  64U

Memory *memory_free(Memory *m) {
        if (!m)
                return NULL;
        for (size_t i = 0; i < m->n_parts; i++)
                safe_close(m->parts[i].fd);
        free(m);
        return NULL;
}

uint64_t memory_part_unallocated(const MemoryPart *part) {
        return part->bytes - MIN_OF(part->bytes, atomic_load(&part->started));
}

/* A file that is not what was asked for would have the guest run on 4K pages, and nobody would notice. */
static int check_kind(int fd, uint64_t page_size) {
        bool huge = page_size != base_page_size();
        struct statfs fs;

        if (fstatfs(fd, &fs) < 0)
                return -errno;
        if (huge != (fs.f_type == HUGETLBFS_MAGIC) || (huge && (uint64_t) fs.f_bsize != page_size))
                return -EMEDIUMTYPE;
        return 0;
}

int memory_part_seal(MemoryPart *part) {
        /* Whoever gets this file must not be able to pull memory from under the guest. */
        return fcntl(part->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

static int part_open(MemoryPart *part, const char *owner, uint64_t page_size, bool sealed) {
        bool huge = page_size != base_page_size();
        unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
        char name[VM_NAME_MAX + 32];
        void *p;
        int r;

        snprintf(part->name, sizeof(part->name), "node%u", part->node);
        snprintf(name, sizeof(name), "tdpd:%s:%s", owner, part->name);

        if (huge)
                flags |= MFD_HUGETLB | (unsigned) __builtin_ctzll(page_size) << MFD_HUGE_SHIFT;
        part->fd = memfd_create(name, flags);
        if (part->fd < 0)
                return -errno;
        r = check_kind(part->fd, page_size);
        if (r < 0)
                return r;
        if (ftruncate(part->fd, (off_t) part->bytes) < 0)
                return -errno;
        if (sealed) {
                r = memory_part_seal(part);
                if (r < 0)
                        return r;
        }
        if (!huge)
                return 0;

        /* A shared mapping without MAP_NORESERVE makes the kernel set the pages aside, for this file and not
         * for the mapping.  From here on nobody else can take them: a look at "free" alone is no promise. */
        p = mmap(NULL, part->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, part->fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        munmap(p, part->bytes);
        return 0;
}

int memory_new(const char *name, const Placement *p, bool sealed, Memory **ret, sd_bus_error *error) {
        _cleanup_(memory_freep) Memory *m = NULL;
        int r;

        m = calloc(1, sizeof(*m) + p->n_parts * sizeof(MemoryPart));
        if (!m)
                return -ENOMEM;
        m->page_size = p->page_size;
        m->bytes = placement_bytes(p);

        for (size_t i = 0; i < p->n_parts; i++) {
                MemoryPart *part = &m->parts[i];

                part->fd = -1;
                part->node = p->parts[i].node;
                part->bytes = p->parts[i].bytes;
                m->n_parts++;
                r = part_open(part, name, p->page_size, sealed);
                if (r == -ENOMEM)
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_NO_PAGES,
                                        "asked %" PRIu64 " pages of %s, which were free on node %u, and the "
                                        "kernel refused to set them aside: another program took them, or a "
                                        "limit of this service's cgroup is in the way; try again",
                                        part->bytes / p->page_size, format_bytes(p->page_size), part->node);
                if (r == -EMEDIUMTYPE)
                        return sd_bus_error_setf(
                                        error, TDP_ERROR_FAILED,
                                        "asked the kernel for a memfd with pages of %s, and got one "
                                        "of another kind (statfs): this memory would silently not "
                                        "be what was asked for",
                                        format_bytes(p->page_size));
                if (r < 0)
                        return sd_bus_error_setf(error, TDP_ERROR_FAILED,
                                                 "cannot make a memfd of %" PRIu64
                                                 " bytes for node %u with pages of %s: %s",
                                                 part->bytes, part->node, format_bytes(p->page_size),
                                                 strerror(-r));
        }

        *ret = TAKE_PTR(m);
        return 0;
}

static int bind_to_node(void *p, uint64_t size, unsigned node) {
        unsigned long mask[NODE_ID_MAX / (8 * sizeof(unsigned long))] = {};
        const unsigned bits = 8 * sizeof(unsigned long);

        if (node >= NODE_ID_MAX)
                return -ERANGE;
        mask[node / bits] |= 1UL << (node % bits);
        /* One bit more than there is: the kernel takes one off. */
        if (mbind(p, size, MPOL_BIND, mask, NODE_ID_MAX + 1, 0) < 0)
                return -errno;
        return 0;
}

int memory_part_map(const MemoryPart *part, uint8_t **ret, const char **ret_call) {
        void *p;
        int r;

        p = mmap(NULL, part->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, part->fd, 0);
        if (p == MAP_FAILED) {
                *ret_call = "mmap";
                return -errno;
        }
        r = bind_to_node(p, part->bytes, part->node);
        if (r < 0) {
                *ret_call = "mbind";
                munmap(p, part->bytes);
                return r;
        }
        *ret = p;
        return 0;
}

int memory_part_populate(MemoryPart *part, uint8_t *map, uint64_t page_size, uint64_t offset, uint64_t size,
                         bool (*go_on)(void *userdata, uint64_t done), void *userdata) {
        uint64_t step = MAX_OF(POPULATE_STEP, page_size), done = 0;

        while (done < size) {
                uint64_t k = MIN_OF(step, size - done);

                atomic_fetch_add(&part->started, k);
                if (madvise(map + offset + done, k, MADV_POPULATE_WRITE) < 0) {
                        /* Pages that are there already cost nothing the second time. */
                        atomic_fetch_sub(&part->started, k);
                        if (errno != EINTR)
                                return -errno;
                        k = 0;
                } else
                        done += k;
                if (!go_on(userdata, k))
                        return -EINTR;
        }
        return 0;
}

int memory_part_verify(const MemoryPart *part, uint8_t *map, uint64_t page_size, uint64_t offset,
                       uint64_t size, uint64_t *ret_offset, int *ret_node) {
        uint64_t stride = page_size == base_page_size() ? VERIFY_SAMPLE * page_size : page_size;
        void *pages[VERIFY_BATCH];
        int nodes[VERIFY_BATCH];

        for (uint64_t at = 0; at < size;) {
                unsigned long n = 0;

                for (; n < VERIFY_BATCH && at < size; n++, at += stride)
                        pages[n] = map + offset + at;
                if (move_pages(0, n, pages, NULL, nodes, 0) < 0)
                        return errno == ENOSYS ? 0 : -errno; /* a kernel without NUMA has one node */
                for (unsigned long i = 0; i < n; i++)
                        /* What is swapped out (-ENOENT) is nowhere, and comes back by the file's policy. */
                        if (nodes[i] >= 0 && (unsigned) nodes[i] != part->node) {
                                *ret_offset = (uint64_t) ((uint8_t *) pages[i] - map);
                                *ret_node = nodes[i];
                                return -EXDEV;
                        }
        }
        return 0;
}
