/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* JSON of what the daemon tells. */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "json.h"

#define FIELDS_MAX 9

/* D-Bus structures have no field names: these properties are lists of them. */
static const struct {
        const char *key;
        const char *fields[FIELDS_MAX];
} shapes[] = {
        { "Reasons", { "reason", "text" } },
        { "Draining", { "name", "bytes", "pids" } },
        { "DrainingBytes", { "node", "page_size", "bytes" } },
        { "HandoffOutcomes", { "role", "outcome", "count" } },
        { "Quarantine", { "what", "reason", "text" } },
        { "Slots", { "gpa", "size", "flags" } },
        { "Pools", { "page_size", "total", "free", "reserved", "surplus", "leased" } },
        { "Warm",
          { "flavour", "bytes", "page_size", "node", "wanted", "ready", "filling", "held_back", "why" } },
        { "WarmBytes", { "node", "page_size", "bytes" } },
        { "Available", { "page_size", "available", "for_others" } },
        { "Targets", { "page_size", "pages", "got", "state" } },
        { "leaves",
          { "page_size", "fault_ns", "fault_measured", "build_ns", "build_measured", "not_measured_as" } },
        { "populate", { "node", "page_size", "bytes_per_sec" } },
};

char *json_key(const char *word) {
        char *key = malloc(2 * strlen(word) + 1), *p = key;

        if (!key)
                return NULL;

        for (size_t i = 0; word[i]; i++) {
                bool starts_word = isupper((unsigned char) word[i]) || isdigit((unsigned char) word[i]);

                if (i > 0 && starts_word && islower((unsigned char) word[i - 1]))
                        *p++ = '_';
                *p++ = word[i] == '-' ? '_' : (char) tolower((unsigned char) word[i]);
        }
        *p = '\0';
        return key;
}

void json_add_string(json_object *object, const char *key, const char *value) {
        json_object_object_add(object, key, value ? json_object_new_string(value) : NULL);
}

void json_add_uint(json_object *object, const char *key, uint64_t value) {
        json_object_object_add(object, key, json_object_new_uint64(value));
}

static json_object *from_structs(const struct tdp_value *list, const char *const fields[FIELDS_MAX]) {
        json_object *array = json_object_new_array();
        const struct tdp_value *item, *field;

        tdp_value_foreach (list, item) {
                json_object *o = json_object_new_object();
                unsigned i = 0;

                tdp_value_foreach (item, field)
                        if (i < FIELDS_MAX && fields[i])
                                json_object_object_add(o, fields[i++], json_from_value(field));
                json_object_array_add(array, o);
        }
        return array;
}

static json_object *from_dict(const struct tdp_value *dict) {
        json_object *o = json_object_new_object();
        const struct tdp_value *v;

        tdp_value_foreach (dict, v) {
                _cleanup_free_ char *key = json_key(tdp_value_get_key(v) ?: "");

                if (key)
                        json_object_object_add(o, key, json_from_value(v));
        }
        return o;
}

static json_object *from_list(const struct tdp_value *list) {
        const char *key = tdp_value_get_key(list);
        const struct tdp_value *v;
        json_object *array;

        for (size_t i = 0; key && i < ELEMENTSOF(shapes); i++)
                if (strcmp(shapes[i].key, key) == 0)
                        return from_structs(list, shapes[i].fields);

        array = json_object_new_array();
        tdp_value_foreach (list, v)
                json_object_array_add(array, json_from_value(v));
        return array;
}

json_object *json_from_value(const struct tdp_value *value) {
        switch (tdp_value_get_type(value)) {
        case TDP_VALUE_BOOL:
                return json_object_new_boolean(tdp_value_get_bool(value));
        case TDP_VALUE_UINT:
                return json_object_new_uint64(tdp_value_get_uint(value));
        case TDP_VALUE_INT:
                return json_object_new_int64(tdp_value_get_int(value));
        case TDP_VALUE_DOUBLE:
                return json_object_new_double(tdp_value_get_double(value));
        case TDP_VALUE_STRING:
                return json_object_new_string(tdp_value_get_string(value));
        case TDP_VALUE_LIST:
                return from_list(value);
        case TDP_VALUE_DICT:
                return from_dict(value);
        }
        return NULL;
}

json_object *json_from_reasons(const struct tdp_value *reasons) {
        return from_structs(reasons, shapes[0].fields);
}

json_object *json_from_holders(const struct tdp_value *holders) {
        static const char *const fields[FIELDS_MAX] = { "page_size", "node", "pages", "pid",
                                                        "uid",       "kind", "name",  "file" };

        return from_structs(holders, fields);
}

json_object *json_from_vm(const struct tdp_vm *vm) {
        const struct tdp_value *properties = tdp_vm_get_properties(vm);
        json_object *o = properties ? from_dict(properties) : json_object_new_object();

        json_add_string(o, "name", tdp_vm_get_name(vm));
        json_add_string(o, "state", tdp_vm_get_state(vm));
        json_add_string(o, "object", tdp_vm_get_path(vm));
        json_add_uint(o, "pid", tdp_vm_get_pid(vm));
        json_add_uint(o, "bytes", tdp_vm_get_bytes(vm));
        return o;
}

json_object *json_from_node(const struct tdp_node *node) {
        json_object *o = from_dict(tdp_node_get_properties(node));

        json_add_uint(o, "id", tdp_node_get_id(node));
        return o;
}

json_object *json_from_handoff(const struct tdp_handoff *h) {
        const struct tdp_value *properties = tdp_handoff_get_properties(h);
        json_object *o = properties ? from_dict(properties) : json_object_new_object();

        json_add_string(o, "id", tdp_handoff_get_id(h));
        json_add_string(o, "vm", tdp_handoff_get_vm_name(h));
        json_add_string(o, "role", tdp_handoff_get_role(h));
        json_add_string(o, "state", tdp_handoff_get_state(h));
        json_add_string(o, "object", tdp_handoff_get_path(h));
        return o;
}

json_object *json_from_job(const struct tdp_job *job) {
        json_object *o = json_object_new_object();

        json_add_uint(o, "id", tdp_job_get_id(job));
        json_add_string(o, "type", tdp_job_get_type(job));
        json_add_string(o, "state", tdp_job_get_state(job));
        json_add_string(o, "vm", tdp_job_get_vm_name(job));
        json_add_string(o, "phase", tdp_job_get_phase(job));
        json_add_uint(o, "done", tdp_job_get_done(job));
        json_add_uint(o, "total", tdp_job_get_total(job));
        return o;
}

static const char *to_text(json_object *object, bool pretty) {
        return json_object_to_json_string_ext(
                        object, JSON_C_TO_STRING_NOSLASHESCAPE |
                                                (pretty ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
                                                        : JSON_C_TO_STRING_PLAIN));
}

int json_print(const struct args *args, json_object *object) {
        if (!object)
                return -ENOMEM;
        puts(to_text(object, args->json == JSON_PRETTY));
        json_object_put(object);
        return 0;
}

int json_write_file(const char *path, json_object *object) {
        _cleanup_free_ char *temporary = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        int r = 0;

        if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
                temporary = NULL;
                r = -ENOMEM;
                goto finish;
        }

        int fd = mkostemp(temporary, O_CLOEXEC);
        f = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (!f) {
                r = -errno;
                if (fd >= 0) {
                        close_keep_errno(fd);
                        (void) unlink(temporary);
                }
                goto finish;
        }
        (void) fchmod(fd, 0644);

        if (fprintf(f, "%s\n", to_text(object, true)) < 0 || fflush(f) != 0 || rename(temporary, path) < 0) {
                r = -errno;
                (void) unlink(temporary);
        }

finish:
        json_object_put(object);
        return r;
}
