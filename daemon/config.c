/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config-table.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdarg.h>

#include "log-message.h"

#define BLANKS      " \t\v\f\r"
#define SECTION_MAX 49U /* the library cuts longer ones short without a word */

int config_refuse(ConfigError *error, const char *format, ...) {
        va_list ap;

        if (error->text[0] == '\0') {
                va_start(ap, format);
                vsnprintf(error->text, sizeof(error->text), format, ap);
                va_end(ap);
                /* Of values, and names of files. */
                for (char *p = error->text; *p; p++)
                        if (*p < ' ' || *p > '~')
                                *p = '?';
        }
        return -EINVAL;
}

static void item_done(const ConfigItem *item, void *base) {
        if (item->type->done)
                item->type->done((char *) base + item->offset);
}

/* The default again. */
static int item_reset(const ConfigItem *item, void *base) {
        ConfigError error = {};

        item_done(item, base);
        if (item->type->is_list && item->value[0] == '\0')
                return 0;
        return item->type->parse(item, item->value, (char *) base + item->offset, &error);
}

static int section_reset(const char *section, void *base) {
        int r;

        for (size_t i = 0; i < config_n_items; i++) {
                if (!streq(config_items[i].section, section))
                        continue;
                r = item_reset(&config_items[i], base);
                if (r < 0)
                        return r;
        }
        return 0;
}

void config_instance_done(const char *section, void *instance) {
        for (size_t i = 0; i < config_n_items; i++)
                if (streq(config_items[i].section, section))
                        item_done(&config_items[i], instance);
}

int config_init(Config *c) {
        int r;

        *c = (Config){};
        for (size_t i = 0; i < config_n_sections; i++) {
                if (config_sections[i].instance)
                        continue;
                r = section_reset(config_sections[i].name, c);
                if (r < 0) {
                        config_done(c);
                        return r;
                }
        }
        return 0;
}

void config_done(Config *c) {
        for (size_t i = 0; i < config_n_sections; i++)
                if (!config_sections[i].instance)
                        config_instance_done(config_sections[i].name, c);
                else
                        config_sections[i].done(c);
        *c = (Config){};
}

typedef struct Parser {
        Config *config;
        const char *path;
        const char *text, *end;
        unsigned line;
        char unknown[SECTION_MAX + 1]; /* section, as last told; at first what none can be */
        int r;
        ConfigError *error;
} Parser;

static const char not_a_line[] = "neither a [section], nor KEY=VALUE, nor a comment";

/* Prefixes what has been said with the place, or says it now. */
static int refuse_line(Parser *p, const char *why) {
        ConfigError said = *p->error;

        p->error->text[0] = '\0';
        p->r = config_refuse(p->error, "%.255s:%u: %s%s%s", p->path, p->line, why, said.text[0] ? ": " : "",
                             said.text);
        return p->r;
}

static int refuse_section(Parser *p, const char *section) {
        char why[SECTION_MAX + 32];

        snprintf(why, sizeof(why), "[%s] cannot be a section", section);
        return refuse_line(p, why);
}

/* What the table says about the values of a key. */
static void say_allowed(const ConfigItem *item, ConfigError *error) {
        char max[32] = "infinity";

        if (item->type->allowed)
                config_refuse(error, "allowed is %s", item->type->allowed);
        else if (item->type->parse == config_type_number.parse ||
                 item->type->parse == config_type_size.parse) {
                if (item->max != UINT64_MAX)
                        snprintf(max, sizeof(max), "%" PRIu64, item->max);
                config_refuse(error, "allowed is a number from %" PRIu64 " to %s%s%s%s", item->min, max,
                              item->unit ? " " : "", item->unit ?: "",
                              item->type == &config_type_size ? ", and the suffixes K, M, G and T" : "");
        }
}

static int assign(Parser *p, const ConfigItem *item, const char *section, const char *value, void *base) {
        char why[320];
        int r;

        if (value[0] == '\0')
                r = item->type->is_list ? (item_done(item, base), 0) : item_reset(item, base);
        else
                r = item->type->parse(item, value, (char *) base + item->offset, p->error);
        if (r >= 0 || r == -ENOMEM)
                return r;

        say_allowed(item, p->error);
        snprintf(why, sizeof(why), "[%s] %s=%s %s", section, item->key, value,
                 r == -ERANGE ? "is out of range" : "makes no sense");
        return refuse_line(p, why);
}

/* The section of that name, and what its keys are about; NULL: there is none. */
static int find_section(Parser *p, const char *section, const ConfigSection **ret, void **ret_base) {
        bool is_new = false;
        int r = 0;

        *ret = NULL;
        for (size_t i = 0; i < config_n_sections && !*ret; i++) {
                const ConfigSection *s = &config_sections[i];
                size_t n = strlen(s->name);

                if (!s->instance) {
                        if (!streq(s->name, section))
                                continue;
                        *ret_base = p->config;
                } else {
                        if (strncmp(s->name, section, n) != 0 || section[n] != ' ')
                                continue;
                        r = s->instance(p->config, section + n + 1 + strspn(section + n + 1, " "), ret_base,
                                        &is_new, p->error);
                        if (r >= 0 && is_new)
                                r = section_reset(s->name, *ret_base);
                        if (r < 0)
                                return r == -ENOMEM ? r : refuse_section(p, section);
                }
                *ret = s;
        }
        return 0;
}

#define LINE_FIELDS(p, section, key)                                                                        \
        FIELDS(FIELD_TEXT("TDP_FILE", (p)->path), FIELD_NUMBER("TDP_LINE", (p)->line),                      \
               FIELD_TEXT("TDP_SECTION", section), FIELD_TEXT("TDP_KEY", key))

static int on_entry(void *userdata, const char *section, const char *key, const char *value) {
        const ConfigSection *known;
        Parser *p = userdata;
        void *base = NULL;

        if (p->r < 0)
                return 1;
        p->r = find_section(p, section, &known, &base);
        if (p->r < 0)
                return 1;
        if (!known) {
                if (section[0] == '\0' && !streq(p->unknown, section))
                        log_message(MESSAGE_CONFIG_IGNORED, LINE_FIELDS(p, section, key),
                                    "%s:%u: %s= comes before the first [section], ignoring it and what "
                                    "follows up to there",
                                    p->path, p->line, key);
                else if (!streq(p->unknown, section))
                        log_message(MESSAGE_CONFIG_IGNORED, LINE_FIELDS(p, section, key),
                                    "%s:%u: there is no section [%s], ignoring its %s= and what follows",
                                    p->path, p->line, section, key);
                snprintf(p->unknown, sizeof(p->unknown), "%s", section);
                return 1;
        }
        for (size_t i = 0; i < config_n_items; i++)
                if (streq(config_items[i].section, known->name) && streq(config_items[i].key, key)) {
                        p->r = assign(p, &config_items[i], section, value, base);
                        return 1;
                }
        log_message(MESSAGE_CONFIG_IGNORED, LINE_FIELDS(p, section, key),
                    "%s:%u: [%s] has no %s=, ignoring it", p->path, p->line, section, key);
        return 1;
}

/* The library would take what is cut off here, or what follows a bracket, without a word. */
static int check_line(Parser *p, const char *line, size_t n, size_t max) {
        const char *close;
        char why[80];

        for (size_t i = 0; i < n; i++) {
                if ((line[i] >= ' ' && line[i] <= '~') || line[i] == '\t')
                        continue;
                snprintf(why, sizeof(why), "byte 0x%02x is no text, only comments may be other than ASCII",
                         (unsigned char) line[i]);
                return refuse_line(p, why);
        }
        if (n > max) {
                snprintf(why, sizeof(why), "the line has %zu bytes, %zu are allowed", n, max);
                return refuse_line(p, why);
        }
        if (line[0] != '[')
                return memchr(line, '=', n) ? 0 : refuse_line(p, not_a_line);

        close = memchr(line, ']', n);
        if (!close || close != line + n - 1)
                return refuse_line(p, "a section is [NAME], alone on its line");
        if (n - 2 > SECTION_MAX) {
                snprintf(why, sizeof(why), "the section's name has %zu bytes, %u are allowed", n - 2,
                         SECTION_MAX);
                return refuse_line(p, why);
        }
        return 0;
}

/*
 * Gives the library one line at a time, like fgets().  It does not tell its handler which line it is at,
 * splits lines that are longer than its buffer (which Debian's has on the stack), and takes what is indented
 * for more of the value before: so this counts, refuses and strips.
 */
static char *next_line(char *buf, int size, void *userdata) {
        Parser *p = userdata;
        const char *line, *end;
        size_t n;

        if (p->r < 0 || p->text >= p->end)
                return NULL;
        p->line++;
        line = p->text;
        end = memchr(line, '\n', (size_t) (p->end - line)) ?: p->end;
        p->text = end + (end < p->end);
        if (p->line == 1 && end - line >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
                line += 3;

        while (line < end && strchr(BLANKS, *line) && *line)
                line++;
        while (end > line && strchr(BLANKS, end[-1]) && end[-1])
                end--;
        n = (size_t) (end - line);

        if (n == 0 || *line == '#' || *line == ';')
                n = 0;
        else if (check_line(p, line, n, (size_t) size - 2) < 0)
                return NULL;
        memcpy(buf, line, n);
        memcpy(buf + n, "\n", 2);
        return buf;
}

int config_parse(Config *c, const char *path, const char *text, size_t size, ConfigError *error) {
        Parser p = {
                .config = c, .path = path, .text = text, .end = text + size, .unknown = "]", .error = error
        };
        int r;

        error->text[0] = '\0';
        r = ini_parse_stream(next_line, &p, on_entry, &p);
        if (p.r < 0)
                return p.r;
        if (r == -2)
                return -ENOMEM;
        if (r == 0)
                return 0;
        p.line = (unsigned) r;
        return refuse_line(&p, not_a_line);
}
