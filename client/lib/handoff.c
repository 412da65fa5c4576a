/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Handoffs: calls that take and give messages, and the objects. */

#include <string.h>

#include "libtdp-private.h"

#define MANAGER TDP_SERVICE ".Manager"
#define VM      TDP_SERVICE ".VM"
#define HANDOFF TDP_SERVICE ".Handoff"

/* Its path says which one it is: ".../ID_ROLE". */
static int handoff_new(struct tdp_ctx *ctx, const char *path, struct tdp_handoff **ret) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        const char *last = strrchr(path, '/'), *role = strrchr(path, '_');

        h = calloc(1, sizeof(*h));
        if (!h)
                return -ENOMEM;
        h->ctx = tdp_ref(ctx);
        h->path = strdup(path);
        if (!h->path)
                return -ENOMEM;
        if (last && role && role > last) {
                h->id = strndup(last + 1, role - last - 1);
                h->role = strdup(role + 1);
                if (!h->id || !h->role)
                        return -ENOMEM;
        }

        *ret = TAKE_PTR(h);
        return 0;
}

TDP_EXPORT struct tdp_handoff *tdp_handoff_free(struct tdp_handoff *first) {
        while (first) {
                struct tdp_handoff *h = first;

                first = h->next;
                sd_bus_slot_unref(h->watch);
                tdp_value_free(h->properties);
                free(h->path);
                free(h->id);
                free(h->vm_name);
                free(h->role);
                free(h->state);
                tdp_unref(h->ctx);
                free(h);
        }
        return NULL;
}

TDP_EXPORT struct tdp_handoff *tdp_handoff_get_next(const struct tdp_handoff *h) {
        return h->next;
}

TDP_EXPORT const char *tdp_handoff_get_path(const struct tdp_handoff *h) {
        return h->path;
}

TDP_EXPORT const char *tdp_handoff_get_id(const struct tdp_handoff *h) {
        return h->id;
}

TDP_EXPORT const char *tdp_handoff_get_vm_name(const struct tdp_handoff *h) {
        return h->vm_name;
}

TDP_EXPORT const char *tdp_handoff_get_role(const struct tdp_handoff *h) {
        return h->role;
}

TDP_EXPORT const char *tdp_handoff_get_state(const struct tdp_handoff *h) {
        return h->state;
}

TDP_EXPORT const struct tdp_value *tdp_handoff_get_properties(const struct tdp_handoff *h) {
        return h->properties;
}

TDP_EXPORT int tdp_handoff_refresh(struct tdp_handoff *h) {
        const struct {
                const char *key;
                char **field;
        } fields[] = {
                { "Id", &h->id }, { "VM", &h->vm_name }, { "Role", &h->role }, { "State", &h->state }
        };
        struct tdp_value *properties;
        int r;

        r = bus_get_all(h->ctx, h->path, HANDOFF, &properties);
        if (r == -ENOENT) /* unknown object: say it in the contract's words */
                return ctx_fail(h->ctx, r, TDP_ERROR_PREFIX "NoSuchHandoff",
                                "There is no handoff %s any more: tdpctl handoff list (ListHandoffs) has those that there are",
                                h->id ?: h->path);
        if (r < 0)
                return r;

        tdp_value_free(h->properties);
        h->properties = properties;
        for (size_t i = 0; i < ELEMENTSOF(fields); i++) {
                r = replace_string(fields[i].field,
                                   tdp_value_get_string(tdp_value_find(properties, fields[i].key)));
                if (r < 0)
                        return ctx_fail(h->ctx, r, NULL, "Out of memory");
                if (!*fields[i].field)
                        return bus_parse_failed(h->ctx, -EBADMSG, "Reading properties");
        }
        return 0;
}

/* "/" is no handoff, and none is asked for if ret is NULL. */
static int read_handoff(struct tdp_ctx *ctx, sd_bus_message *m, struct tdp_handoff **ret) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        const char *path;
        int r;

        r = sd_bus_message_read(m, "o", &path);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Handoff");
        if (ret && strcmp(path, "/") != 0) {
                r = handoff_new(ctx, path, &h);
                if (r < 0)
                        return ctx_fail(ctx, r, NULL, "Out of memory");
        }
        if (ret)
                *ret = TAKE_PTR(h);
        return 0;
}

/* An empty message is none. */
static int read_message(struct tdp_ctx *ctx, sd_bus_message *m, struct tdp_message **ret) {
        struct tdp_message *message = NULL;
        const void *data;
        size_t size;
        int r;

        r = sd_bus_message_read_array(m, 'y', &data, &size);
        if (r < 0)
                return bus_parse_failed(ctx, r, "Handoff");
        if (ret && size > 0) {
                r = tdp_message_new(data, size, &message);
                if (r < 0)
                        return ctx_fail(ctx, r, NULL, "The daemon's message cannot be kept: %s",
                                        strerror(-r));
        }
        if (ret)
                *ret = message;
        return 0;
}

static int append_message(struct tdp_ctx *ctx, sd_bus_message *m, const struct tdp_message *message) {
        int r;

        r = sd_bus_message_append_array(m, 'y', message->data, message->size);
        return r < 0 ? ctx_fail(ctx, r, NULL, "Cannot make the call: %s", strerror(-r)) : 0;
}

static int append_options(struct tdp_ctx *ctx, sd_bus_message *m, const struct tdp_options *options) {
        int r;

        r = options_append(options, m, NULL, NULL);
        return r < 0 ? ctx_fail(ctx, r, NULL, "Cannot make the call: %s", strerror(-r)) : 0;
}

TDP_EXPORT int tdp_vm_offer_handoff(struct tdp_vm *vm, const struct tdp_options *options,
                                    struct tdp_handoff **ret_handoff, struct tdp_message **ret_offer) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        int r;

        r = bus_new_call(vm->ctx, vm->path, VM, "OfferHandoff", &m);
        if (r >= 0)
                r = append_options(vm->ctx, m, options);
        if (r >= 0)
                r = bus_call_message(vm->ctx, m, "OfferHandoff", &reply);
        if (r >= 0)
                r = read_handoff(vm->ctx, reply, ret_handoff ? &h : NULL);
        if (r >= 0)
                r = read_message(vm->ctx, reply, ret_offer);
        if (r < 0)
                return r;

        if (ret_handoff)
                *ret_handoff = TAKE_PTR(h);
        return 0;
}

TDP_EXPORT int tdp_prepare_incoming(struct tdp_ctx *ctx, const struct tdp_message *offer,
                                    const struct tdp_options *options, struct tdp_handoff **ret_handoff,
                                    struct tdp_message **ret_answer, struct tdp_job **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        _cleanup_(tdp_message_freep) struct tdp_message *answer = NULL;
        struct tdp_job *job = NULL;
        const char *path;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "PrepareIncoming", &m);
        if (r >= 0)
                r = append_message(ctx, m, offer);
        if (r >= 0)
                r = append_options(ctx, m, options);
        if (r >= 0)
                r = bus_call_message(ctx, m, "PrepareIncoming", &reply);
        if (r >= 0)
                r = read_handoff(ctx, reply, ret_handoff ? &h : NULL);
        if (r >= 0)
                r = read_message(ctx, reply, &answer);
        if (r < 0)
                return r;

        r = sd_bus_message_read(reply, "o", &path);
        if (r < 0)
                return bus_parse_failed(ctx, r, "PrepareIncoming");
        if (ret_job && strcmp(path, "/") != 0) {
                r = job_new_from_path(ctx, path, "reserve", "/", &job);
                if (r < 0)
                        return ctx_fail(ctx, r, NULL, "PrepareIncoming: %s", strerror(-r));
        }

        if (ret_handoff)
                *ret_handoff = TAKE_PTR(h);
        if (ret_answer)
                *ret_answer = TAKE_PTR(answer);
        if (ret_job)
                *ret_job = job;
        return 0;
}

TDP_EXPORT int tdp_deliver_handoff(struct tdp_ctx *ctx, const struct tdp_message *message,
                                   struct tdp_handoff **ret_handoff, struct tdp_message **ret_reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "DeliverHandoff", &m);
        if (r >= 0)
                r = append_message(ctx, m, message);
        if (r >= 0)
                r = bus_call_message(ctx, m, "DeliverHandoff", &reply);
        if (r >= 0)
                r = read_handoff(ctx, reply, ret_handoff ? &h : NULL);
        if (r >= 0)
                r = read_message(ctx, reply, ret_reply);
        if (r < 0)
                return r;

        if (ret_handoff)
                *ret_handoff = TAKE_PTR(h);
        return 0;
}

static int read_list(struct tdp_ctx *ctx, sd_bus_message *m, struct tdp_handoff **ret_first) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *first = NULL;
        struct tdp_handoff **tail = &first;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "(ossss)");
        if (r < 0)
                return r;

        for (;;) {
                const char *path, *id, *vm, *role, *state;

                r = sd_bus_message_read(m, "(ossss)", &path, &id, &vm, &role, &state);
                if (r < 0)
                        return r;
                if (r == 0)
                        break;

                r = handoff_new(ctx, path, tail);
                if (r < 0)
                        return r;
                r = replace_string(&(*tail)->id, id);
                if (r >= 0)
                        r = replace_string(&(*tail)->vm_name, vm);
                if (r >= 0)
                        r = replace_string(&(*tail)->role, role);
                if (r >= 0)
                        r = replace_string(&(*tail)->state, state);
                if (r < 0)
                        return r;
                tail = &(*tail)->next;
        }

        *ret_first = TAKE_PTR(first);
        return 0;
}

TDP_EXPORT int tdp_list_handoffs(struct tdp_ctx *ctx, struct tdp_handoff **ret_first) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        r = bus_new_call(ctx, TDP_PATH, MANAGER, "ListHandoffs", &m);
        if (r >= 0)
                r = bus_call_message(ctx, m, "ListHandoffs", &reply);
        if (r < 0)
                return r;

        r = read_list(ctx, reply, ret_first);
        return r < 0 ? bus_parse_failed(ctx, r, "ListHandoffs") : 0;
}

TDP_EXPORT int tdp_get_handoff(struct tdp_ctx *ctx, const char *id, const char *role,
                               struct tdp_handoff **ret_handoff) {
        _cleanup_(tdp_handoff_freep) struct tdp_handoff *h = NULL;
        char path[sizeof(TDP_PATH "/handoff/") + 32 + sizeof("_destination")];
        int r;

        if (!id || strlen(id) != 32 || strspn(id, "0123456789abcdef") != 32)
                return ctx_fail(ctx, -EINVAL, NULL, "A handoff's id is 32 hexadecimal digits, not \"%s\"",
                                id ?: "");
        if (!role || (strcmp(role, "source") != 0 && strcmp(role, "destination") != 0))
                return ctx_fail(ctx, -EINVAL, NULL, "A role is source or destination, not \"%s\"",
                                role ?: "");

        (void) snprintf(path, sizeof(path), TDP_PATH "/handoff/%s_%s", id, role);
        r = handoff_new(ctx, path, &h);
        if (r < 0)
                return ctx_fail(ctx, r, NULL, "Out of memory");
        r = tdp_handoff_refresh(h);
        if (r < 0)
                return r;

        *ret_handoff = TAKE_PTR(h);
        return 0;
}

/* A call on the object: with options or a text if there are any, and a message back if one is wanted. */
static int call(struct tdp_handoff *h, const char *member, bool with_options,
                const struct tdp_options *options, const char *text, bool with_message,
                struct tdp_message **ret_message) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int r;

        r = bus_new_call(h->ctx, h->path, HANDOFF, member, &m);
        if (r >= 0 && with_options)
                r = append_options(h->ctx, m, options);
        if (r >= 0 && text) {
                r = sd_bus_message_append(m, "s", text);
                if (r < 0)
                        return ctx_fail(h->ctx, r, NULL, "%s: the text is not UTF-8, and cannot be sent",
                                        member);
        }
        if (r >= 0)
                r = bus_call_message(h->ctx, m, member, &reply);
        if (r < 0)
                return r;
        return with_message ? read_message(h->ctx, reply, ret_message) : 0;
}

TDP_EXPORT int tdp_handoff_next(struct tdp_handoff *h, struct tdp_message **ret_message) {
        return call(h, "Next", false, NULL, NULL, true, ret_message);
}

TDP_EXPORT int tdp_handoff_start(struct tdp_handoff *h, const struct tdp_options *options,
                                 struct tdp_message **ret_start) {
        return call(h, "Start", true, options, NULL, true, ret_start);
}

TDP_EXPORT int tdp_handoff_commit(struct tdp_handoff *h, const struct tdp_options *options,
                                  struct tdp_message **ret_commit) {
        return call(h, "Commit", true, options, NULL, true, ret_commit);
}

TDP_EXPORT int tdp_handoff_arrived(struct tdp_handoff *h) {
        return call(h, "Arrived", false, NULL, NULL, false, NULL);
}

TDP_EXPORT int tdp_handoff_cancel(struct tdp_handoff *h, const char *text) {
        return call(h, "Cancel", false, NULL, text ?: "", false, NULL);
}

TDP_EXPORT int tdp_handoff_forget(struct tdp_handoff *h) {
        return call(h, "Forget", false, NULL, NULL, false, NULL);
}
