/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * The stand-in's handoffs: those states and messages that a client sees, and no rules. A message is a line:
 * "KIND ID VM BYTES". What goes wrong is told by the words in the file $FAKE_HANDOFF, read each time:
 *   refuse-offer, refuse-prepare, refuse-start, refuse-commit: that call   cancel-prepare: the job ends so
 *   abort-commit: the destination does not take it   mute: it does not answer to a commit
 *   lose-complete: it takes it, its first answer is lost   slow-verify: it takes half a second to do it
 *   hold-verify: it does not come to an end with it   refuse-cancel: as if too late
 */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake-tdpd.h"

#define HANDOFFS_MAX 8
#define VERIFY_TICKS 25

struct handoff {
        char id[33], path[96], vm[64], state[16], pending[16];
        uint64_t bytes;
        struct job *job;
        unsigned ticks;
        bool used, is_source, has_lost;
};

static struct handoff handoffs[HANDOFFS_MAX];

static bool wants(const char *word) {
        const char *path = getenv("FAKE_HANDOFF");
        char text[256] = "";
        FILE *f = path ? fopen(path, "r") : NULL;

        if (f) {
                (void) !fread(text, 1, sizeof(text) - 1, f);
                fclose(f);
        }
        return strstr(text, word);
}

static void set_state(struct handoff *h, const char *state) {
        snprintf(h->state, sizeof(h->state), "%s", state);
        h->ticks = 0;
        (void) sd_bus_emit_properties_changed(bus, h->path, "org.tdpd1.Handoff", "State", NULL);
}

static bool is(const struct handoff *h, const char *state) {
        return strcmp(h->state, state) == 0;
}

static void say(struct handoff *h, const char *kind) {
        snprintf(h->pending, sizeof(h->pending), "%s", kind);
}

static struct handoff *find(const char *id, bool is_source) {
        for (unsigned i = 0; i < HANDOFFS_MAX; i++)
                if (handoffs[i].used && handoffs[i].is_source == is_source &&
                    strcmp(handoffs[i].id, id) == 0)
                        return &handoffs[i];
        return NULL;
}

static struct handoff *handoff_new(const char *id, const char *vm, uint64_t bytes, bool is_source,
                                   const char *state) {
        for (unsigned i = 0; i < HANDOFFS_MAX; i++)
                if (!handoffs[i].used) {
                        struct handoff *h = &handoffs[i];

                        *h = (struct handoff){ .used = true, .bytes = bytes, .is_source = is_source };
                        snprintf(h->id, sizeof(h->id), "%s", id);
                        snprintf(h->vm, sizeof(h->vm), "%s", vm);
                        snprintf(h->path, sizeof(h->path), "/org/tdpd1/handoff/%s_%s", id,
                                 is_source ? "source" : "destination");
                        set_state(h, state);
                        return h;
                }
        abort();
}

void handoffs_tick(void) {
        for (unsigned i = 0; i < HANDOFFS_MAX; i++) {
                struct handoff *h = &handoffs[i];
                struct vm *vm = h->used ? vm_by_name(h->vm) : NULL;

                if (!h->used)
                        continue;
                h->ticks++;
                if (is(h, "preparing") && !vm)
                        set_state(h, "gone");
                else if (is(h, "preparing") && strcmp(vm->state, "populated") == 0) {
                        set_state(h, "ready");
                        say(h, "answer");
                } else if (is(h, "undoing"))
                        set_state(h, "kept");
                else if (is(h, "freeing") || is(h, "releasing")) {
                        if (vm)
                                vm_free(vm);
                        if (h->is_source)
                                say(h, "released");
                        set_state(h, h->is_source ? "released" : "gone");
                } else if (is(h, "verifying") && h->ticks >= VERIFY_TICKS && !wants("hold-verify")) {
                        set_state(h, "owner");
                        say(h, "complete");
                }
        }
}

/* kind NULL: an empty message. */
static int append_message(sd_bus_message *reply, const struct handoff *h, const char *kind) {
        char text[160] = "";

        if (kind && kind[0])
                snprintf(text, sizeof(text), "%s %s %s %llu", kind, h->id, h->vm,
                         (unsigned long long) h->bytes);
        return sd_bus_message_append_array(reply, 'y', text, strlen(text));
}

/* object: the handoff's path comes first.  job: it comes last. */
static int reply(sd_bus_message *m, const char *object, const struct handoff *h, const char *kind,
                 const char *job) {
        sd_bus_message *r = NULL;
        int e;

        e = sd_bus_message_new_method_return(m, &r);
        if (e >= 0 && object)
                e = sd_bus_message_append(r, "o", object);
        if (e >= 0)
                e = append_message(r, h, kind);
        if (e >= 0 && job)
                e = sd_bus_message_append(r, "o", job);
        if (e >= 0)
                e = sd_bus_send(NULL, r, NULL);
        sd_bus_message_unref(r);
        return e;
}

static int read_message(sd_bus_message *m, char kind[static 16], char id[static 33], char vm[static 64],
                        unsigned long long *bytes) {
        const void *data;
        char text[256];
        size_t size;
        int r;

        r = sd_bus_message_read_array(m, 'y', &data, &size);
        if (r < 0)
                return r;
        size = size < sizeof(text) ? size : sizeof(text) - 1;
        memcpy(text, data, size);
        text[size] = '\0';
        return sscanf(text, "%15s %32s %63s %llu", kind, id, vm, bytes) == 4 ? 0 : -EBADMSG;
}

int m_offer_handoff(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static unsigned n;
        struct vm *vm = userdata;
        struct handoff *h;
        char id[33];

        if (wants("refuse-offer"))
                return sd_bus_error_set(error, E("Busy"), "It is busy, wait, and ask again");
        snprintf(id, sizeof(id), "%08x%08x%016x", ++n, (unsigned) getpid(), 0xabcdU);
        h = handoff_new(id, vm->name, vm->bytes, true, "offered");
        return reply(m, h->path, h, "offer", NULL);
}

int m_prepare_incoming(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char kind[16], id[33], name[64];
        unsigned long long bytes;
        struct handoff *h;
        struct vm *vm;

        if (read_message(m, kind, id, name, &bytes) < 0 || strcmp(kind, "offer") != 0)
                return sd_bus_error_set(error, E("BadMessage"), "This is no offer");
        h = find(id, false);
        if (h)
                return reply(m, h->path, h, is(h, "ready") ? "answer" : NULL,
                             h->job->used ? h->job->path : "/");
        if (wants("refuse-prepare"))
                return sd_bus_error_set(error, E("NoPages"), "64M asked, nothing there, free some");
        if (vm_by_name(name))
                return sd_bus_error_set(error, E("NameTaken"), "There is such a VM");
        vm = vm_new(name, bytes, "reserved");
        h = handoff_new(id, name, bytes, false, "preparing");
        h->job = job_new(vm, "reserve", "populate");
        if (wants("cancel-prepare"))
                snprintf(h->job->state, sizeof(h->job->state), "canceling");
        return reply(m, h->path, h, NULL, h->job->path);
}

/* What the destination says to a commit, or NULL. */
static const char *on_commit(struct handoff *h) {
        if (is(h, "ready") || is(h, "receiving")) {
                if (wants("mute"))
                        return NULL;
                if (wants("abort-commit")) {
                        set_state(h, "freeing");
                        return "abort";
                }
                set_state(h, wants("slow-verify") || wants("hold-verify") ? "verifying" : "owner");
        }
        if (is(h, "verifying"))
                return NULL;
        if (!is(h, "owner") && !is(h, "done"))
                return "abort";
        if (wants("lose-complete") && !h->has_lost) {
                h->has_lost = true;
                return NULL;
        }
        return "complete";
}

int m_deliver_handoff(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char kind[16], id[33], name[64];
        unsigned long long bytes;
        struct handoff *h, unknown = {};
        const char *answer = NULL;
        bool to_source;

        if (read_message(m, kind, id, name, &bytes) < 0)
                return sd_bus_error_set(error, E("BadMessage"), "This is no message");
        to_source = strcmp(kind, "answer") == 0 || strcmp(kind, "complete") == 0;
        h = find(id, to_source);
        if (!h && strcmp(kind, "abort") == 0)
                h = find(id, true);
        if (!h) {
                snprintf(unknown.id, sizeof(unknown.id), "%s", id);
                snprintf(unknown.vm, sizeof(unknown.vm), "%s", name);
                return reply(m, "/", &unknown, strcmp(kind, "commit") == 0 ? "abort" : NULL, NULL);
        }

        if (strcmp(kind, "answer") == 0 && is(h, "offered"))
                set_state(h, "granted");
        else if (strcmp(kind, "start") == 0 && is(h, "ready"))
                set_state(h, "receiving");
        else if (strcmp(kind, "commit") == 0)
                answer = on_commit(h);
        else if (strcmp(kind, "complete") == 0 && is(h, "committing"))
                set_state(h, "releasing");
        else if (strcmp(kind, "released") == 0 && is(h, "owner"))
                set_state(h, "done");
        else if (strcmp(kind, "abort") == 0 && h->is_source && !is(h, "kept"))
                set_state(h, "undoing");
        else if (strcmp(kind, "abort") == 0 && !h->is_source && !is(h, "gone") && !is(h, "owner"))
                set_state(h, "freeing");
        return reply(m, h->path, h, answer, NULL);
}

int m_list_handoffs(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        sd_bus_message *r = NULL;
        int e;

        e = sd_bus_message_new_method_return(m, &r);
        if (e >= 0)
                e = sd_bus_message_open_container(r, 'a', "(ossss)");
        for (unsigned i = 0; e >= 0 && i < HANDOFFS_MAX; i++)
                if (handoffs[i].used)
                        e = sd_bus_message_append(
                                        r, "(ossss)", handoffs[i].path, handoffs[i].id, handoffs[i].vm,
                                        handoffs[i].is_source ? "source" : "destination", handoffs[i].state);
        if (e >= 0)
                e = sd_bus_message_close_container(r);
        if (e >= 0)
                e = sd_bus_send(NULL, r, NULL);
        sd_bus_message_unref(r);
        return e;
}

/* The object */

static int m_next(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct handoff *h = userdata;
        char kind[16];

        memcpy(kind, h->pending, sizeof(kind));
        h->pending[0] = '\0';
        return reply(m, NULL, h, kind, NULL);
}

static int m_start(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct handoff *h = userdata;

        if (wants("refuse-start"))
                return sd_bus_error_set(error, E("Failed"), "It cannot start");
        if (!is(h, "granted"))
                return sd_bus_error_set(error, E("TooEarly"), "Nothing is granted");
        set_state(h, "started");
        h->job = job_new(vm_by_name(h->vm), "split", "split");
        return reply(m, NULL, h, "start", NULL);
}

static int m_commit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct handoff *h = userdata;

        if (wants("refuse-commit"))
                return sd_bus_error_set(error, E("Failed"), "It cannot be written down");
        if (is(h, "kept") || is(h, "undoing"))
                return sd_bus_error_set(error, E("Canceled"), "It is off");
        if (!is(h, "started") && !is(h, "committing"))
                return sd_bus_error_set(error, E("TooEarly"), "It has not started, or is over");
        set_state(h, "committing");
        return reply(m, NULL, h, "commit", NULL);
}

static int m_cancel(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct handoff *h = userdata;
        bool over = is(h, "committing") || is(h, "releasing") || is(h, "released") || is(h, "owner") ||
                    is(h, "done");

        if (over || wants("refuse-cancel"))
                return sd_bus_error_set(error, E("TooLate"), "It is too late");
        if (!is(h, "kept") && !is(h, "gone")) {
                set_state(h, h->is_source ? "undoing" : "freeing");
                say(h, "abort");
        }
        return sd_bus_reply_method_return(m, NULL);
}

static int m_arrived(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, NULL);
}

static int m_forget(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        struct handoff *h = userdata;

        if (!is(h, "kept") && !is(h, "gone") && !is(h, "released") && !is(h, "done"))
                return sd_bus_error_set(error, E("Busy"), "It has not ended");
        h->used = false;
        return sd_bus_reply_method_return(m, NULL);
}

static int p_handoff(sd_bus *b, const char *path, const char *interface, const char *property,
                     sd_bus_message *r, void *userdata, sd_bus_error *error) {
        struct handoff *h = userdata;

        if (strcmp(property, "Pending") == 0)
                return sd_bus_message_append(r, "u", h->pending[0] ? 1U : 0U);
        if (strcmp(property, "Bytes") == 0)
                return sd_bus_message_append(r, "t", h->bytes);
        return sd_bus_message_append(r, "s",
                                     strcmp(property, "Id") == 0      ? h->id
                                     : strcmp(property, "VM") == 0    ? h->vm
                                     : strcmp(property, "State") == 0 ? h->state
                                     : strcmp(property, "Mode") == 0  ? "global"
                                     : strcmp(property, "Role") == 0
                                                     ? h->is_source ? "source" : "destination"
                                                     : "");
}

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Id", "s", p_handoff, 0, 0),
        SD_BUS_PROPERTY("VM", "s", p_handoff, 0, 0),
        SD_BUS_PROPERTY("Role", "s", p_handoff, 0, 0),
        SD_BUS_PROPERTY("State", "s", p_handoff, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Mode", "s", p_handoff, 0, 0),
        SD_BUS_PROPERTY("Bytes", "t", p_handoff, 0, 0),
        SD_BUS_PROPERTY("Pending", "u", p_handoff, 0, 0),
        METHOD("Next", "", "ay", m_next),
        METHOD("Start", "a{sv}", "ay", m_start),
        METHOD("Commit", "a{sv}", "ay", m_commit),
        METHOD("Arrived", "", "", m_arrived),
        METHOD("Cancel", "s", "", m_cancel),
        METHOD("Forget", "", "", m_forget),
        SD_BUS_VTABLE_END,
};

static int find_handoff(sd_bus *b, const char *path, const char *interface, void *userdata, void **ret,
                        sd_bus_error *error) {
        for (unsigned i = 0; i < HANDOFFS_MAX; i++)
                if (handoffs[i].used && strcmp(handoffs[i].path, path) == 0) {
                        *ret = &handoffs[i];
                        return 1;
                }
        return 0;
}

int handoffs_register(void) {
        return sd_bus_add_fallback_vtable(bus, NULL, "/org/tdpd1/handoff", "org.tdpd1.Handoff", vtable,
                                          find_handoff, NULL);
}
