/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a table may have: lists, sections with names, checks.  This one stands in for the real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "config-table.h"

/* A list, as words with commas between. */
static int parse_list(const ConfigItem *item, const char *value, void *target, ConfigError *error) {
        char *old = *(char **) target, *new;

        if (streq(value, "many"))
                return config_refuse(error, "too many of them");
        if (strchr(value, ','))
                return -EINVAL;
        if (asprintf(&new, "%s%s%s", old ?: "", old ? "," : "", value) < 0)
                return -ENOMEM;
        free(old);
        *(char **) target = new;
        return 0;
}

static void done_list(void *target) {
        free(*(char **) target);
        *(char **) target = NULL;
}

static const ConfigType type_list = {
        .parse = parse_list, .done = done_list, .is_list = true, .allowed = "a word"
};

typedef struct Thing {
        char *name;
        char *list;
        uint64_t number;
} Thing;

static Thing things[3];
static size_t n_things;

static int get_thing(Config *c, const char *name, void **ret, bool *ret_is_new, ConfigError *error) {
        for (size_t i = 0; i < n_things; i++)
                if (streq(things[i].name, name)) {
                        *ret = &things[i];
                        return 0;
                }
        if (name[0] == '\0' || n_things == ELEMENTSOF(things))
                return config_refuse(error, "%s",
                                     name[0] ? "three things are the most" : "a name is needed");
        things[n_things] = (Thing){ .name = strdup(name) };
        if (!things[n_things].name)
                return -ENOMEM;
        *ret = &things[n_things++];
        *ret_is_new = true;
        return 0;
}

static void done_things(Config *c) {
        while (n_things > 0) {
                config_instance_done("Thing", &things[--n_things]);
                free(things[n_things].name);
        }
}

static int check_things(const Config *c, ConfigError *error) {
        for (size_t i = 0; i < n_things; i++)
                if (things[i].number == 13)
                        return config_refuse(error, "[Thing %s] has Number=13", things[i].name);
        return 0;
}

const ConfigSection config_sections[] = {
        { .name = "Plain" },
        { .name = "Thing",
          .doc = "Things. More.",
          .instance = get_thing,
          .done = done_things,
          .check = check_things },
};
const size_t config_n_sections = ELEMENTSOF(config_sections);

const ConfigItem config_items[] = {
        { "Plain", "List", &type_list, offsetof(Config, group), "", 0, 0, NULL, "A list." },
        { "Plain", "Threads", &config_type_number, offsetof(Config, threads), "2", 1, 9, "threads",
          "So many." },
        { "Thing", "List", &type_list, offsetof(Thing, list), "", 0, 0, NULL, "A list of each." },
        { "Thing", "Number", &config_type_size, offsetof(Thing, number), "1K", 2, 4096, NULL, "E.g. -1." },
};
const size_t config_n_items = ELEMENTSOF(config_items);

static void load(Config *c, const char *text) {
        ConfigError e;

        assert_int_equal(config_init(c), 0);
        if (config_parse(c, "file", text, strlen(text), &e) < 0)
                fail_msg("%s", e.text);
}

static void refused(const char *text, const char *want) {
        ConfigError e;
        Config c;

        assert_int_equal(config_init(&c), 0);
        assert_int_equal(config_parse(&c, "file", text, strlen(text), &e), -EINVAL);
        assert_string_equal(e.text, want);
        config_done(&c);
}

static void test_lists(void **state) {
        Config c;

        load(&c, "");
        assert_null(c.group);
        config_done(&c);
        load(&c, "[Plain]\nList=a\nThreads=5\nList=b\n[Plain]\nList=c\n");
        assert_string_equal(c.group, "a,b,c");
        config_done(&c);
        load(&c, "[Plain]\nList=a\nList=b\nList=\nList=c\n");
        assert_string_equal(c.group, "c");
        config_done(&c);
        load(&c, "[Plain]\nList=a\nList=\n");
        assert_null(c.group);
        config_done(&c);

        refused("[Plain]\nList=a\nList=many\n",
                "file:3: [Plain] List=many makes no sense: too many of them");
        refused("[Plain]\nList=a,b\n", "file:2: [Plain] List=a,b makes no sense: allowed is a word");
}

static void test_named_sections(void **state) {
        Config c;

        load(&c, "[Thing b]\nList=x\n[Thing a]\nNumber=7\n[Plain]\nList=z\n[Thing b]\nList=y\n");
        assert_int_equal(n_things, 2);
        assert_string_equal(things[0].name, "b");
        assert_string_equal(things[0].list, "x,y");
        assert_int_equal(things[0].number, 1024); /* default */
        assert_string_equal(things[1].name, "a");
        assert_null(things[1].list);
        assert_int_equal(things[1].number, 7);
        assert_string_equal(c.group, "z");
        config_done(&c);
        assert_int_equal(n_things, 0);

        refused("[Thing a]\nNumber=9999\n",
                "file:2: [Thing a] Number=9999 is out of range: allowed is a number from 2 to 4096, and the "
                "suffixes K, M, G and T");
        refused("[Thing ]\nNumber=2\n", "file:2: [Thing ] cannot be a section: a name is needed");
        refused("[Thing a]\nNumber=2\n[Thing b]\nNumber=2\n[Thing c]\nNumber=2\n[Thing d]\nNumber=2\n",
                "file:8: [Thing d] cannot be a section: three things are the most");
}

static void test_check(void **state) {
        char path[] = "/tmp/tdpd-config-XXXXXX";
        int fd = mkstemp(path);
        ConfigError e;
        Config c;

        assert_true(fd >= 0);
        assert_true(write(fd, "[Thing a]\nNumber=13\n", 20) == 20);
        close(fd);
        assert_int_equal(config_load(&(ConfigSource){ .file = path }, &c, &e), -EINVAL);
        assert_string_equal(e.text, "[Thing a] has Number=13");
        assert_int_equal(n_things, 0);
        unlink(path);
}

static void test_dumps(void **state) {
        char *text = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&text, &size);
        assert_int_equal(config_dump(f), 0);
        fclose(f);
        assert_string_equal(
                        strstr(text, "[Plain]"),
                        "[Plain]\n# A list.\n#List=\n# So many.\n#Threads=2\n\n"
                        "#[Thing NAME]\n# Things. More.\n# A list of each.\n#List=\n# E.g. -1.\n#Number=1K\n");
        free(text);

        f = open_memstream(&text, &size);
        assert_int_equal(config_dump_man(f), 0);
        fclose(f);
        assert_string_equal(text,
                            ".SH [Plain]\n"
                            ".TP\n.B List=\nA list.\nCan be given more than once.\nDefault: none.\n"
                            ".TP\n.B Threads=\nSo many.\nFrom 1 to 9.\nDefault: 2.\n"
                            ".SH [Thing NAME]\nThings.\nMore.\n"
                            ".TP\n.B List=\nA list of each.\nCan be given more than once.\nDefault: none.\n"
                            ".TP\n.B Number=\nE.g. \\-1.\nFrom 2 to 4096.\nA size.\nDefault: 1K.\n");
        free(text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_lists),
                cmocka_unit_test(test_named_sections),
                cmocka_unit_test(test_check),
                cmocka_unit_test(test_dumps),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
