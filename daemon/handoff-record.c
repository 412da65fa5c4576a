/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "handoff-record.h"

#include <errno.h>
#include <inttypes.h>

#include "memstream.h"

static const RecordFrame frame = { "tdpd-handoff ", HANDOFF_RECORD_VERSION, HANDOFF_RECORD_SIZE_MAX };

#define T(type) (1U << HANDOFF_##type)

/* What has been said before a state can be. */
static const unsigned needed[_HANDOFF_STATE_MAX] = {
        [HANDOFF_S_OFFERED] = T(OFFER),
        [HANDOFF_S_GRANTED] = T(OFFER) | T(ANSWER),
        [HANDOFF_S_STARTED] = T(OFFER) | T(ANSWER) | T(START),
        [HANDOFF_S_COMMITTING] = T(OFFER) | T(ANSWER) | T(START) | T(COMMIT),
        [HANDOFF_S_SERVING] = T(OFFER) | T(ANSWER) | T(START) | T(COMMIT) | T(COMPLETE),
        [HANDOFF_S_RELEASING] = T(OFFER) | T(ANSWER) | T(START) | T(COMMIT) | T(COMPLETE),
        [HANDOFF_S_RELEASED] = T(OFFER) | T(ANSWER) | T(START) | T(COMMIT) | T(COMPLETE),
        [HANDOFF_S_UNDOING] = T(OFFER) | T(ABORT),
        [HANDOFF_S_KEPT] = T(OFFER) | T(ABORT),
        [HANDOFF_D_PREPARING] = T(OFFER),
        [HANDOFF_D_READY] = T(OFFER) | T(ANSWER),
        [HANDOFF_D_RECEIVING] = T(OFFER) | T(ANSWER) | T(START),
        [HANDOFF_D_VERIFYING] = T(OFFER) | T(ANSWER) | T(COMMIT),
        [HANDOFF_D_TAKEN] = T(OFFER) | T(ANSWER) | T(COMMIT) | T(COMPLETE),
        [HANDOFF_D_OWNER] = T(OFFER) | T(ANSWER) | T(COMMIT) | T(COMPLETE),
        [HANDOFF_D_DONE] = T(OFFER) | T(ANSWER) | T(COMMIT) | T(COMPLETE),
        [HANDOFF_D_FREEING] = T(OFFER) | T(ABORT),
        [HANDOFF_D_GONE] = T(OFFER) | T(ABORT),
};

/* Whether it has been said; "m" is a message of it then. Hosts and grant are those of the record, and the
 * message has something in their place. */
static bool get_message(const HandoffRecord *r, HandoffType type, HandoffMessage *m) {
        *m = (HandoffMessage){
                .role = type == HANDOFF_ANSWER || type == HANDOFF_COMPLETE ? HANDOFF_DESTINATION
                                                                           : HANDOFF_SOURCE,
                .id = r->id,
                .from = r->id,
                .generation = r->generation,
                .type = type,
        };
        strcpy(m->vm, r->vm);
        if (type != HANDOFF_OFFER) {
                m->to = r->id;
                m->grant = r->id;
        }
        switch (type) {
        case HANDOFF_OFFER:
                m->offer = r->offer;
                return true;
        case HANDOFF_ANSWER:
                m->answer = r->answer;
                m->answer.time_left_usec = MAX_OF(r->answer.time_left_usec, UINT64_C(1));
                return r->answer.page_size > 0;
        case HANDOFF_START:
                m->start = r->start;
                m->start.time_left_usec = MAX_OF(r->start.time_left_usec, UINT64_C(1));
                return r->start.logging > 0;
        case HANDOFF_COMMIT:
                m->commit = r->commit;
                return needed[r->state] & T(COMMIT);
        case HANDOFF_COMPLETE:
                m->complete = r->complete;
                return r->complete.new_generation > 0;
        default:
                m->abort = r->abort;
                return r->abort.reason > 0;
        }
}

static void set_message(HandoffRecord *r, const HandoffMessage *m) {
        switch (m->type) {
        case HANDOFF_OFFER:
                r->offer = m->offer;
                break;
        case HANDOFF_ANSWER:
                r->answer = m->answer;
                break;
        case HANDOFF_START:
                r->start = m->start;
                break;
        case HANDOFF_COMMIT:
                r->commit = m->commit;
                break;
        case HANDOFF_COMPLETE:
                r->complete = m->complete;
                break;
        default:
                r->abort = m->abort;
                break;
        }
}

static void write_hex(FILE *f, const char *key, const uint8_t *data, size_t size) {
        fprintf(f, "%s ", key);
        for (size_t i = 0; i < size; i++)
                fprintf(f, "%02x", data[i]);
        fputc('\n', f);
}

static void write_id(FILE *f, const char *key, const HandoffId *id) {
        write_hex(f, key, id->bytes, sizeof(id->bytes));
}

static int write_messages(FILE *f, const HandoffRecord *r) {
        for (HandoffType t = 0; t < _HANDOFF_TYPE_MAX; t++) {
                _cleanup_free_ uint8_t *data = NULL;
                HandoffProblem problem;
                HandoffMessage m;
                size_t size;
                int k;

                if (!get_message(r, t, &m))
                        continue;
                k = handoff_pack(&m, &data, &size, &problem);
                if (k < 0)
                        return k;
                write_hex(f, handoff_type_to_string(t), data, size);
        }
        return 0;
}

int handoff_record_format(const HandoffRecord *r, char **ret, size_t *ret_size) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        FILE *f;
        int k;

        f = open_memstream(&text, &size);
        if (!f)
                return -ENOMEM;
        fprintf(f, "%s%u\n", frame.magic, frame.version);
        fprintf(f, "role %s\nstate %s\n", handoff_role_to_string(r->side),
                handoff_state_to_string(r->state));
        write_id(f, "id", &r->id);
        write_id(f, "grant", &r->grant);
        write_id(f, "peer", &r->peer);
        fprintf(f, "vm %s\nname %s\n", r->vm, r->name);
        fprintf(f, "generation %" PRIu64 "\nlease %016" PRIx64 "\nuid %" PRIu32 "\n", r->generation,
                r->lease, r->uid);
        fprintf(f, "boot-id %s\ndeadline-usec %" PRIu64 "\nfinished-usec %" PRIu64 "\n", r->boot_id,
                r->deadline_usec, r->finished_usec);
        fprintf(f, "memory-taken %u\nreleased-bytes %" PRIu64 "\n", (unsigned) r->memory_taken,
                r->released_bytes);
        k = write_messages(f, r);
        k = record_close(f, &text, &size, k);
        if (k < 0)
                return k;
        *ret = TAKE_PTR(text);
        *ret_size = size;
        return 0;
}

/* The value of the next line, which must have that key. */
static int next_value(char **text, const char *key, char **ret, RecordFault *fault) {
        char *line = strsep(text, "\n"), *value;

        value = line ? strchr(line, ' ') : NULL;
        if (value)
                *value++ = '\0';
        if (!value || !streq(line, key))
                return record_fail(fault, line && *line ? "unknown-key" : "bad-value",
                                   "key \"%s\" should come next, and \"%.60s\" does", key, line ?: "");
        *ret = value;
        return 0;
}

static int bad_value(RecordFault *fault, const char *key, const char *value) {
        return record_fail(fault, "bad-value", "\"%.60s\" is nothing for key \"%s\"", value, key);
}

static int next_u64(char **text, const char *key, uint64_t max, uint64_t *ret, RecordFault *fault) {
        char *value;
        int k;

        k = next_value(text, key, &value, fault);
        if (k < 0)
                return k;
        return record_read_u64(value, ret) < 0 || *ret > max ? bad_value(fault, key, value) : 0;
}

static int next_word(char **text, const char *key, char *ret, size_t size, RecordFault *fault) {
        char *value;
        int k;

        k = next_value(text, key, &value, fault);
        if (k < 0)
                return k;
        if (strlen(value) >= size || strchr(value, ' '))
                return bad_value(fault, key, value);
        strcpy(ret, value);
        return 0;
}

static int hex_digit(char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *s, uint8_t *ret, size_t size) {
        for (size_t i = 0; i < size; i++) {
                int high = hex_digit(s[2 * i]), low = high < 0 ? -1 : hex_digit(s[2 * i + 1]);

                if (low < 0)
                        return false;
                ret[i] = (uint8_t) (high << 4 | low);
        }
        return s[2 * size] == '\0';
}

static int next_id(char **text, const char *key, HandoffId *ret, RecordFault *fault) {
        char *value;
        int k;

        k = next_value(text, key, &value, fault);
        if (k < 0)
                return k;
        return read_hex(value, ret->bytes, sizeof(ret->bytes)) ? 0 : bad_value(fault, key, value);
}

static int next_state(char **text, HandoffRecord *r, RecordFault *fault) {
        char role[16], state[16];
        int k;

        k = next_word(text, "role", role, sizeof(role), fault);
        if (k >= 0)
                k = next_word(text, "state", state, sizeof(state), fault);
        if (k < 0)
                return k;
        r->side = streq(role, handoff_role_to_string(HANDOFF_SOURCE)) ? HANDOFF_SOURCE : HANDOFF_DESTINATION;
        if (!streq(role, handoff_role_to_string(r->side)))
                return bad_value(fault, "role", role);
        if (handoff_state_from_string(r->side, state, &r->state) < 0 || needed[r->state] == 0)
                return bad_value(fault, "state", state);
        return 0;
}

/* A message is what proto/ says it is, and of this handoff. */
static int parse_message(char *line, HandoffRecord *r, unsigned *seen, RecordFault *fault) {
        char *value = strchr(line, ' ');
        _cleanup_free_ uint8_t *data = NULL;
        HandoffProblem problem;
        HandoffMessage m, own;
        size_t size;
        int k;

        if (value)
                *value++ = '\0';
        size = value ? strlen(value) / 2 : 0;
        data = malloc(size + 1);
        if (!data)
                return -ENOMEM;
        if (!value || !read_hex(value, data, size))
                return record_fail(fault, "bad-value", "line \"%.60s\" is no message in hex digits", line);
        k = handoff_unpack(data, size, &m, &problem);
        if (k == -ENOMEM)
                return k;
        if (k < 0)
                return record_fail(fault, "bad-value", "%.120s", problem.text);
        handoff_message_done(&m);
        (void) get_message(r, m.type, &own);
        if (!streq(line, handoff_type_to_string(m.type)) || (*seen & 1U << m.type) ||
            !handoff_id_equal(&m.id, &own.id) || !streq(m.vm, own.vm) || m.generation != own.generation ||
            m.role != own.role)
                return record_fail(fault, "bad-value", "the message \"%.20s\" is there twice, or another's",
                                   line);
        *seen |= 1U << m.type;
        set_message(r, &m);
        return 0;
}

static const char *find_contradiction(const HandoffRecord *r, unsigned seen) {
        bool granted = r->side == HANDOFF_DESTINATION || (needed[r->state] & T(ANSWER));

        if (!handoff_id_is_set(&r->id))
                return "the id is none";
        if (!vm_name_is_valid(r->vm) || !vm_name_is_valid(r->name))
                return "a name is not plain";
        if (r->generation == 0 || r->lease == 0)
                return "the generation or the lease is 0";
        if (strlen(r->boot_id) != BOOT_ID_LEN)
                return "the boot id is none";
        if (granted && (!handoff_id_is_set(&r->grant) || !handoff_id_is_set(&r->peer)))
                return "it is granted, and has no grant or no peer";
        if ((seen & needed[r->state]) != needed[r->state])
                return "what must have been said is not there";
        return NULL;
}

static int parse_keys(char *text, HandoffRecord *r, RecordFault *fault) {
        uint64_t uid = 0, taken = 0;
        const char *contradiction;
        char lease[17] = "", *line;
        unsigned seen = 0;
        int k;

        if ((k = next_state(&text, r, fault)) < 0 || (k = next_id(&text, "id", &r->id, fault)) < 0 ||
            (k = next_id(&text, "grant", &r->grant, fault)) < 0 ||
            (k = next_id(&text, "peer", &r->peer, fault)) < 0 ||
            (k = next_word(&text, "vm", r->vm, sizeof(r->vm), fault)) < 0 ||
            (k = next_word(&text, "name", r->name, sizeof(r->name), fault)) < 0 ||
            (k = next_u64(&text, "generation", INT64_MAX, &r->generation, fault)) < 0 ||
            (k = next_word(&text, "lease", lease, sizeof(lease), fault)) < 0 ||
            (k = next_u64(&text, "uid", UINT32_MAX, &uid, fault)) < 0 ||
            (k = next_word(&text, "boot-id", r->boot_id, sizeof(r->boot_id), fault)) < 0 ||
            (k = next_u64(&text, "deadline-usec", UINT64_MAX, &r->deadline_usec, fault)) < 0 ||
            (k = next_u64(&text, "finished-usec", UINT64_MAX, &r->finished_usec, fault)) < 0 ||
            (k = next_u64(&text, "memory-taken", 1, &taken, fault)) < 0 ||
            (k = next_u64(&text, "released-bytes", UINT64_C(1) << 52, &r->released_bytes, fault)) < 0)
                return k;
        if (record_read_hex(lease, &r->lease) < 0)
                return bad_value(fault, "lease", lease);
        r->uid = (uint32_t) uid;
        r->memory_taken = taken;
        while ((line = strsep(&text, "\n")) && *line != '\0') {
                k = parse_message(line, r, &seen, fault);
                if (k < 0)
                        return k;
        }
        contradiction = line && text && *text ? "there is more behind its end" : find_contradiction(r, seen);
        return contradiction ? record_fail(fault, "bad-value", "%s", contradiction) : 0;
}

int handoff_record_parse(const char *text, size_t size, HandoffRecord *ret, RecordFault *fault) {
        _cleanup_free_ char *copy = NULL;
        HandoffRecord r = {};
        int k;

        k = record_open(&frame, text, size, &copy, fault);
        if (k >= 0)
                k = parse_keys(copy, &r, fault);
        if (k >= 0)
                *ret = r;
        return k;
}
