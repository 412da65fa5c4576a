/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What sysfs says of nodes and pools, and a placement on them. Lines in this order: online, cpulist, meminfo
 * (one line), free, total, surplus and reserved pages of the 2M pool, bytes of a VM. All nodes get the same.
 */

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <syslog.h>

#include "fuzz.h"
#include "log.h"
#include "placement.h"

#define N_NODES 2

static char root[] = "/tmp/tdpd-fuzz-XXXXXX";

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static void remove_root(void) {
        (void) nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void write_text(const char *path, const char *text) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        FUZZ_CHECK(fd >= 0);
        FUZZ_CHECK(write(fd, text, strlen(text)) == (ssize_t) strlen(text));
        close(fd);
}

static void make_dir(const char *path) {
        FUZZ_CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
}

/* Once; later only the files' contents change. */
static void make_tree(void) {
        char path[128];

        if (!strstr(root, "XXXXXX"))
                return;
        FUZZ_CHECK(mkdtemp(root) && chdir(root) == 0);
        atexit(remove_root);
        make_dir("kernel");
        make_dir("kernel/mm");
        make_dir("kernel/mm/hugepages");
        make_dir("kernel/mm/hugepages/hugepages-2048kB");
        make_dir("devices");
        make_dir("devices/system");
        make_dir("devices/system/node");
        for (unsigned i = 0; i < N_NODES; i++) {
                snprintf(path, sizeof(path), "devices/system/node/node%u", i);
                make_dir(path);
                snprintf(path, sizeof(path), "devices/system/node/node%u/hugepages", i);
                make_dir(path);
                snprintf(path, sizeof(path), "devices/system/node/node%u/hugepages/hugepages-2048kB", i);
                make_dir(path);
        }
}

static void write_node(unsigned i, const char *file, const char *text) {
        char path[128];

        snprintf(path, sizeof(path), "devices/system/node/node%u/%s", i, file);
        write_text(path, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const char *const files[] = { "cpulist", "meminfo",
                                             "hugepages/hugepages-2048kB/free_hugepages",
                                             "hugepages/hugepages-2048kB/nr_hugepages",
                                             "hugepages/hugepages-2048kB/surplus_hugepages" };
        _cleanup_free_ char *text = fuzz_string(data, size), *ids = NULL;
        _cleanup_(node_table_freep) NodeTable *t = NULL;
        _cleanup_(placement_done) Placement p = {};
        __attribute__((cleanup(sd_bus_error_free))) sd_bus_error error = SD_BUS_ERROR_NULL;
        PlacementRequest request = { .page_size = UINT64_C(2) << 20 };
        const char *lines[8];
        char *rest = text;

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                lines[i] = fuzz_line(&rest) ?: "";

        log_set_max_level(LOG_EMERG);
        make_tree();
        write_text("devices/system/node/online", lines[0]);
        for (unsigned node = 0; node < N_NODES; node++)
                for (size_t i = 0; i < ELEMENTSOF(files); i++)
                        write_node(node, files[i], lines[1 + i]);
        write_text("kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", lines[6]);

        if (node_table_load(root, &t) < 0)
                return 0;
        FUZZ_CHECK(t->n_nodes <= N_NODES);
        FUZZ_CHECK(node_table_format_ids(t, &ids) == 0);

        request.bytes = strtoull(lines[7], NULL, 0);
        if (placement_make(t, NULL, 0, &request, &p, &error) < 0)
                FUZZ_CHECK(sd_bus_error_is_set(&error));
        else
                FUZZ_CHECK(placement_bytes(&p) == request.bytes && request.bytes > 0);
        return 0;
}
