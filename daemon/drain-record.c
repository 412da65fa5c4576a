/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "drain-record.h"

#include <errno.h>
#include <inttypes.h>

#include "memstream.h"

static const RecordFrame frame = { "tdpd-drain ", DRAIN_RECORD_VERSION, DRAIN_RECORD_SIZE_MAX };

void drain_record_done(DrainRecord *r) {
        free(r->files);
        *r = (DrainRecord){};
}

int drain_record_format(const DrainRecord *r, char **ret, size_t *ret_size) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        FILE *f;
        int k;

        f = open_memstream(&text, &size);
        if (!f)
                return -ENOMEM;
        fprintf(f,
                "%s%u\nboot-id %s\nname %s\nlease %016" PRIx64 "\nuid %" PRIu32 "\npage-size %" PRIu64 "\n",
                frame.magic, frame.version, r->boot_id, r->name, r->lease, r->uid, r->page_size);
        for (size_t i = 0; i < r->n_files; i++)
                if (!r->files[i].gone)
                        fprintf(f, "file %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", r->files[i].node,
                                r->files[i].bytes, (uint64_t) r->files[i].device,
                                (uint64_t) r->files[i].inode);
        k = record_close(f, &text, &size, 0);
        if (k < 0)
                return k;
        *ret = TAKE_PTR(text);
        *ret_size = size;
        return 0;
}

/* The next line's value, if that line is of this key. */
static int next_value(char **text, const char *key, char **ret, RecordFault *fault) {
        char *line = strsep(text, "\n");
        size_t n = strlen(key);

        if (!line || *line == '\0')
                return record_fail(fault, "bad-value", "key \"%s\" is missing", key);
        if (strncmp(line, key, n) != 0 || line[n] != ' ')
                return record_fail(fault, "unknown-key", "\"%.60s\" stands where key \"%s\" should", line,
                                   key);
        *ret = line + n + 1;
        return 0;
}

static int bad_value(const char *key, const char *value, RecordFault *fault) {
        return record_fail(fault, "bad-value", "\"%.60s\" is nothing for key \"%s\"", value, key);
}

static int read_text(char **text, const char *key, char *buf, size_t room, RecordFault *fault) {
        char *value;
        int r;

        r = next_value(text, key, &value, fault);
        if (r < 0)
                return r;
        if (strlen(value) >= room)
                return bad_value(key, value, fault);
        strcpy(buf, value);
        return 0;
}

static int read_number(char **text, const char *key, uint64_t max, uint64_t *ret, RecordFault *fault) {
        char *value;
        int r;

        r = next_value(text, key, &value, fault);
        if (r < 0)
                return r;
        return record_read_u64(value, ret) < 0 || *ret > max ? bad_value(key, value, fault) : 0;
}

static int read_file(char *value, DrainRecord *r) {
        uint64_t numbers[4];
        DrainFile *grown;

        for (size_t i = 0; i < ELEMENTSOF(numbers); i++) {
                char *word = strsep(&value, " ");

                if (!word || record_read_u64(word, &numbers[i]) < 0)
                        return -EINVAL;
        }
        if (value || numbers[0] >= NODE_ID_MAX || numbers[1] == 0 || numbers[1] % r->page_size != 0 ||
            numbers[1] > INT64_MAX / DRAIN_FILES_MAX || r->n_files >= DRAIN_FILES_MAX)
                return -EINVAL;
        grown = reallocarray(r->files, r->n_files + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        r->files = grown;
        grown[r->n_files++] = (DrainFile){
                .node = (unsigned) numbers[0],
                .bytes = numbers[1],
                .device = numbers[2],
                .inode = numbers[3],
                .watch = -1,
        };
        return 0;
}

static int read_files(char **text, DrainRecord *r, RecordFault *fault) {
        char *value;
        int k;

        do {
                k = next_value(text, "file", &value, fault);
                if (k >= 0)
                        k = read_file(value, r);
                if (k == -EINVAL)
                        return record_fail(fault, "bad-value", "file %zu is none", r->n_files);
        } while (k >= 0 && *text && **text != '\0');
        return k;
}

static int read_all(char *text, DrainRecord *r, RecordFault *fault) {
        uint64_t uid = 0;
        char lease[17];
        int k;

        if ((k = read_text(&text, "boot-id", r->boot_id, sizeof(r->boot_id), fault)) < 0 ||
            (k = read_text(&text, "name", r->name, sizeof(r->name), fault)) < 0 ||
            (k = read_text(&text, "lease", lease, sizeof(lease), fault)) < 0 ||
            (k = read_number(&text, "uid", UINT32_MAX, &uid, fault)) < 0 ||
            (k = read_number(&text, "page-size", GIB(1), &r->page_size, fault)) < 0)
                return k;
        r->uid = (uint32_t) uid;
        if (strlen(r->boot_id) != BOOT_ID_LEN)
                return bad_value("boot-id", r->boot_id, fault);
        if (!vm_name_is_valid(r->name))
                return bad_value("name", r->name, fault);
        if (record_read_hex(lease, &r->lease) < 0 || r->lease == 0)
                return bad_value("lease", lease, fault);
        if (r->page_size < KIB(4) || (r->page_size & (r->page_size - 1)) != 0)
                return record_fail(fault, "bad-value", "the page size is none");
        return read_files(&text, r, fault);
}

int drain_record_parse(const char *text, size_t size, DrainRecord *ret, RecordFault *fault) {
        _cleanup_free_ char *copy = NULL;
        int k;

        k = record_open(&frame, text, size, &copy, fault);
        if (k < 0)
                return k;
        *ret = (DrainRecord){};
        k = read_all(copy, ret, fault);
        if (k < 0)
                drain_record_done(ret);
        return k;
}
