/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "record-text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "memstream.h"

/* FNV-1a: finds accidents, and is not meant to find forgeries, as only root can write there. */
uint64_t record_checksum(const char *p, size_t n) {
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < n; i++)
                h = (h ^ (uint8_t) p[i]) * UINT64_C(0x100000001b3);
        return h;
}

int record_fail(RecordFault *fault, const char *word, const char *format, ...) {
        va_list ap;

        fault->word = word;
        va_start(ap, format);
        vsnprintf(fault->text, sizeof(fault->text), format, ap);
        va_end(ap);
        return -EBADMSG;
}

int record_read_u64(const char *s, uint64_t *ret) {
        uint64_t v = 0;

        if (*s == '\0' || (s[0] == '0' && s[1] != '\0'))
                return -EINVAL;
        for (; *s != '\0'; s++)
                if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10U, &v) ||
                    __builtin_add_overflow(v, (uint64_t) (*s - '0'), &v))
                        return -EINVAL;
        *ret = v;
        return 0;
}

int record_read_hex(const char *s, uint64_t *ret) {
        char *end;

        if (strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
                return -EINVAL;
        *ret = strtoull(s, &end, 16);
        return 0;
}

static int check_frame(const RecordFrame *frame, const char *text, size_t size, const char **ret,
                       size_t *ret_size, RecordFault *fault) {
        const size_t magic = strlen(frame->magic), tail = strlen("end 0123456789abcdef\n");
        unsigned version = 0;
        uint64_t sum;
        char hex[17];
        size_t n;

        if (size > frame->size_max)
                return record_fail(fault, "too-large", "%zu bytes are more than a record has", size);
        if (size < magic && memcmp(text, frame->magic, size) == 0)
                return record_fail(fault, "truncated", "it ends after %zu bytes", size);
        if (size < magic || memcmp(text, frame->magic, magic) != 0)
                return record_fail(fault, "no-record", "it does not begin like a record");
        for (n = magic; n < size && text[n] >= '0' && text[n] <= '9' && version < 1000000; n++)
                version = version * 10 + (unsigned) (text[n] - '0');
        if (n == size)
                return record_fail(fault, "truncated", "it ends after %zu bytes", size);
        if (text[n] != '\n' || n == magic || version == 0)
                return record_fail(fault, "no-record", "its version is no number");
        if (version != frame->version)
                return record_fail(fault, "newer", "it is of version %u, and this tdpd knows version %u",
                                   version, frame->version);
        n++;
        if (size < n + tail || text[size - 1] != '\n' || memcmp(text + size - tail, "end ", 4) != 0 ||
            text[size - tail - 1] != '\n')
                return record_fail(fault, "truncated", "its last line is missing after %zu bytes", size);
        memcpy(hex, text + size - 17, 16);
        hex[16] = '\0';
        if (record_read_hex(hex, &sum) < 0 || sum != record_checksum(text, size - tail) ||
            memchr(text, '\0', size))
                return record_fail(fault, "damaged", "its checksum is wrong");
        *ret = text + n;
        *ret_size = size - tail - n;
        return 0;
}

int record_open(const RecordFrame *frame, const char *text, size_t size, char **ret, RecordFault *fault) {
        const char *lines = NULL;
        char *copy;
        size_t n = 0;
        int r;

        r = check_frame(frame, text, size, &lines, &n, fault);
        if (r < 0)
                return r;
        /* What was read from a file is no string. */
        copy = malloc(n + 1);
        if (!copy)
                return -ENOMEM;
        memcpy(copy, lines, n);
        copy[n] = '\0';
        *ret = copy;
        return 0;
}

int record_close(FILE *f, char *const *text, size_t *size, int r) {
        if (fflush(f) == 0 && *text)
                fprintf(f, "end %016" PRIx64 "\n", record_checksum(*text, *size));
        if (ferror(f))
                r = -ENOMEM;
        if (memstream_close(f, text) < 0)
                return -ENOMEM;
        return r;
}
