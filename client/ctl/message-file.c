/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Messages of handoffs as files: binary, base64 or hex. */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"
#include "message-file.h"

/* As hex, with a line end behind each pair of digits. */
#define FILE_MAX (4 * (size_t) TDP_MESSAGE_MAX)

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *message_to_base64(const struct tdp_message *message) {
        const unsigned char *data = tdp_message_get_data(message);
        size_t size = tdp_message_get_size(message);
        char *text = malloc((size + 2) / 3 * 4 + 1), *p = text;

        if (!text)
                return NULL;

        for (size_t i = 0; i < size; i += 3) {
                uint32_t n = (uint32_t) data[i] << 16;

                if (i + 1 < size)
                        n |= (uint32_t) data[i + 1] << 8;
                if (i + 2 < size)
                        n |= data[i + 2];
                *p++ = base64_digits[n >> 18];
                *p++ = base64_digits[n >> 12 & 63];
                *p++ = '=';
                *p++ = '=';
                if (i + 1 < size)
                        p[-2] = base64_digits[n >> 6 & 63];
                if (i + 2 < size)
                        p[-1] = base64_digits[n & 63];
        }
        *p = '\0';
        return text;
}

char *message_to_hex(const struct tdp_message *message) {
        const unsigned char *data = tdp_message_get_data(message);
        size_t size = tdp_message_get_size(message);
        char *text = malloc(2 * size + 1);

        for (size_t i = 0; text && i < size; i++)
                (void) snprintf(text + 2 * i, 3, "%02x", data[i]);
        return text;
}

int message_from_base64(const char *text, size_t size, struct tdp_message **ret) {
        _cleanup_free_ unsigned char *data = malloc(size / 4 * 3 + 3);
        size_t n_digits = 0, n_padding = 0, length = 0;
        uint32_t n = 0;

        if (!data)
                return -ENOMEM;

        for (size_t i = 0; i < size; i++) {
                const char *digit;

                if (isspace((unsigned char) text[i]))
                        continue;
                if (text[i] == '=') {
                        n_padding++;
                        continue;
                }
                digit = text[i] ? strchr(base64_digits, text[i]) : NULL;
                if (!digit || n_padding > 0)
                        return -EBADMSG;
                n = n << 6 | (uint32_t) (digit - base64_digits);
                /* Each but the first of four completes a byte; what is left waits for the next. */
                if (n_digits++ % 4 > 0)
                        data[length++] = (unsigned char) (n >> (6 - 2 * ((n_digits - 1) % 4)));
        }
        if ((n_digits + n_padding) % 4 != 0 || n_padding > 2)
                return -EBADMSG;
        return tdp_message_new(data, length, ret);
}

static int hex_digit(char c) {
        return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char) c) ? tolower(c) - 'a' + 10 : -1;
}

int message_from_hex(const char *text, size_t size, struct tdp_message **ret) {
        _cleanup_free_ unsigned char *data = malloc(size / 2 + 1);
        size_t n_digits = 0;

        if (!data)
                return -ENOMEM;

        for (size_t i = 0; i < size; i++) {
                int digit = hex_digit(text[i]);

                if (isspace((unsigned char) text[i]))
                        continue;
                if (digit < 0)
                        return -EBADMSG;
                if (n_digits % 2 == 0)
                        data[n_digits / 2] = (unsigned char) (digit << 4);
                else
                        data[n_digits / 2] |= (unsigned char) digit;
                n_digits++;
        }
        return n_digits % 2 != 0 ? -EBADMSG : tdp_message_new(data, n_digits / 2, ret);
}

static const struct {
        const char *name;
        char *(*to)(const struct tdp_message *message); /* NULL: as it is */
        int (*from)(const char *text, size_t size, struct tdp_message **ret);
} encodings[] = {
        { "binary" },
        { "base64", message_to_base64, message_from_base64 },
        { "hex", message_to_hex, message_from_hex },
};

static size_t encoding(const struct args *args) {
        for (size_t i = 0; i < ELEMENTSOF(encodings); i++)
                if (args->encoding && strcmp(args->encoding, encodings[i].name) == 0)
                        return i;
        return 0;
}

int encoding_check(const struct args *args) {
        if (args->encoding && strcmp(encodings[encoding(args)].name, args->encoding) != 0)
                return log_error(-EINVAL, "--encoding=%s is not known. Give binary, base64 or hex.",
                                 args->encoding);
        return 0;
}

static int read_all(int fd, char *buffer, size_t *ret_size) {
        size_t size = 0;

        while (size < FILE_MAX) {
                ssize_t n = read(fd, buffer + size, FILE_MAX - size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                size += (size_t) n;
        }
        *ret_size = size;
        return 0;
}

int message_read(const struct args *args, const char *path, struct tdp_message **ret) {
        bool standard = strcmp(path, "-") == 0;
        const char *name = standard ? "standard input" : path;
        _cleanup_free_ char *buffer = malloc(FILE_MAX);
        _cleanup_close_ int opened = -1;
        size_t size = 0, e = encoding(args);
        int r;

        if (!buffer)
                return log_error(-ENOMEM, "Out of memory.");
        if (!standard) {
                opened = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
                if (opened < 0)
                        return log_error(-errno, "\"%s\" cannot be opened: %s", path, strerror(errno));
        }

        r = read_all(standard ? STDIN_FILENO : opened, buffer, &size);
        if (r < 0)
                return log_error(r, "The message cannot be read from %s: %s", name, strerror(-r));
        if (size == 0)
                return log_error(-EINVAL, "There is no message in %s: it is empty.", name);

        r = encodings[e].from ? encodings[e].from(buffer, size, ret) : tdp_message_new(buffer, size, ret);
        if (r == -EMSGSIZE)
                return log_error(r, "What is in %s is longer than a message can be (%u bytes).", name,
                                 TDP_MESSAGE_MAX);
        if (r == -EBADMSG || r == -EINVAL)
                return log_error(r, "What is in %s is no message in %s.", name, encodings[e].name);
        if (r < 0)
                return log_error(r, "The message cannot be read from %s: %s", name, strerror(-r));
        return 0;
}

/* A file holds a right to memory: nobody else may read it. */
static int write_to(const char *path, const char *data, size_t size) {
        _cleanup_fclose_ FILE *f = NULL;
        int fd;

        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
        f = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (!f) {
                int r = -errno;

                close_keep_errno(fd);
                return r;
        }
        return fwrite(data, 1, size, f) == size && fflush(f) == 0 ? 0 : -errno;
}

int message_write(const struct args *args, const struct tdp_message *message) {
        bool standard = !args->output || strcmp(args->output, "-") == 0;
        _cleanup_free_ char *text = NULL;
        const char *data = tdp_message_get_data(message);
        size_t size = tdp_message_get_size(message), e = encoding(args);
        int r;

        if (encodings[e].to) {
                text = encodings[e].to(message);
                if (!text)
                        return log_error(-ENOMEM, "Out of memory.");
                data = text;
                size = strlen(text);
                text[size++] = '\n'; /* in the place of its end */
        } else if (standard && isatty(STDOUT_FILENO))
                return log_error(-EINVAL,
                                 "A binary message is nothing for a terminal. Redirect the output, or give "
                                 "--encoding=base64 or --output=FILE.");

        if (!standard) {
                r = write_to(args->output, data, size);
                return r < 0 ? log_error(r, "\"%s\" cannot be written: %s", args->output, strerror(-r)) : 0;
        }
        return fwrite(data, 1, size, stdout) == size
                               ? 0
                               : log_error(-EIO, "The message cannot be written: %s", strerror(errno));
}
