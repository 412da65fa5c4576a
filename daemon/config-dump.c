/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

#include "config-table.h"

#define COLUMNS 100U

/* As comments, in lines that are not too long. */
static void comment(FILE *f, const char *text) {
        size_t column = 0;

        while (*text) {
                size_t n = strcspn(text, " ");

                if (column > 0 && column + 1 + n > COLUMNS) {
                        fputc('\n', f);
                        column = 0;
                }
                fprintf(f, "%s%.*s", column == 0 ? "# " : " ", (int) n, text);
                column += 2 + n;
                text += n;
                text += strspn(text, " ");
        }
        if (column > 0)
                fputc('\n', f);
}

int config_dump(FILE *f) {
        fputs("# SPDX-License-Identifier: LGPL-2.1-or-later\n"
              "#\n"
              "# Configuration of tdpd, see tdpd.conf(5). All values are the defaults.\n"
              "# Local changes are best made in files of their own, in /etc/tdpd/tdpd.conf.d/*.conf.\n"
              "# \"tdpd --check-config\" looks for errors, \"systemctl reload tdpd\" makes changes take effect.\n",
              f);
        for (size_t s = 0; s < config_n_sections; s++) {
                fprintf(f, config_sections[s].instance ? "\n#[%s NAME]\n" : "\n[%s]\n",
                        config_sections[s].name);
                comment(f, config_sections[s].doc ?: "");
                for (size_t i = 0; i < config_n_items; i++) {
                        if (!streq(config_items[i].section, config_sections[s].name))
                                continue;
                        comment(f, config_items[i].doc);
                        fprintf(f, "#%s=%s\n", config_items[i].key, config_items[i].value);
                }
        }
        return ferror(f) ? -EIO : 0;
}

/* For roff: a sentence on a line of its own, and nothing at its start that would be a request. */
static void roff(FILE *f, const char *text) {
        bool start = true;

        for (const char *p = text; *p; p++) {
                if (start && (*p == '.' || *p == '\''))
                        fputs("\\&", f);
                start = false;
                if (*p == '-')
                        fputs("\\-", f);
                else if (*p == '\\')
                        fputs("\\e", f);
                else if (*p == ' ' && p > text && p[-1] == '.' && isupper((unsigned char) p[1])) {
                        fputc('\n', f);
                        start = true;
                } else
                        fputc(*p, f);
        }
}

static void dump_range(FILE *f, const ConfigItem *item) {
        bool is_size = item->type == &config_type_size;

        if (!is_size && item->type != &config_type_number)
                return;
        if (item->max != UINT64_MAX)
                fprintf(f, "From %" PRIu64 " to %" PRIu64 ".\n", item->min, item->max);
        else if (item->min > 0)
                fprintf(f, "At least %" PRIu64 ".\n", item->min);
        if (is_size)
                fputs("A size.\n", f);
}

int config_dump_man(FILE *f) {
        for (size_t s = 0; s < config_n_sections; s++) {
                fprintf(f, config_sections[s].instance ? ".SH [%s NAME]\n" : ".SH [%s]\n",
                        config_sections[s].name);
                if (config_sections[s].doc) {
                        roff(f, config_sections[s].doc);
                        fputc('\n', f);
                }
                for (size_t i = 0; i < config_n_items; i++) {
                        const ConfigItem *item = &config_items[i];

                        if (!streq(item->section, config_sections[s].name))
                                continue;
                        fprintf(f, ".TP\n.B %s=\n", item->key);
                        roff(f, item->doc);
                        fputc('\n', f);
                        dump_range(f, item);
                        if (item->type->is_list)
                                fputs("Can be given more than once.\n", f);
                        fputs("Default: ", f);
                        roff(f, item->value[0] ? item->value : "none");
                        fputs(".\n", f);
                }
        }
        return ferror(f) ? -EIO : 0;
}
