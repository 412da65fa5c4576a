/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What operators may want to find, count or be woken by: a journal entry with a MESSAGE_ID and fields of its
 * own.  config/tdpd.catalog explains each id; a test holds the two together. */

#include <inttypes.h>

#include "log.h"

/* Ids are never given another meaning: people's filters have them.  "systemd-id128 new" makes more. */
#define LOG_MESSAGES(X)                                                                                     \
        X(DAEMON_READY, LOG_INFO, "0240fe85f972496b9d006756b211ff9e")                                       \
        X(DAEMON_STOPPING, LOG_INFO, "0bd49f8c24dc4111a0c378e5f30b16fd")                                    \
        X(NO_GROUP, LOG_WARNING, "97f57f80168a49f8bacd1e9448f395f2")                                        \
        X(CONFIG_READ, LOG_INFO, "97a711dfa01b4812b3349c8a249a2334")                                        \
        X(CONFIG_REFUSED, LOG_ERR, "9e431765178941ed89d7a493e421b0e0")                                      \
        X(MEMLOCK_LOW, LOG_WARNING, "a9bc733b18284dbcb41c357a417ac1b8")                                     \
        X(CONFIG_IGNORED, LOG_WARNING, "633056f883914e5194327c6c41495f6d")                                  \
        X(WARM_READY, LOG_INFO, "b7d9861ca2664623be7590104fc16eeb")                                         \
        X(WARM_FAILED, LOG_WARNING, "0c29e5b7f90e4c0b87915a9c0a4186db")                                     \
        X(WARM_GIVEN_UP, LOG_INFO, "750b6c3407ce4aabb382123819bcb4dc")                                      \
        X(REQUEST_REFUSED, LOG_NOTICE, "ca4c723352b84fceb0e30bd965c1c03b")                                  \
        X(NOT_PERMITTED, LOG_NOTICE, "1262abe4956a4bd4b14d64abb3b3fe1d")                                    \
        X(VM_RESERVED, LOG_INFO, "b603f553912648b7bf1182919fa59971")                                        \
        X(VM_WAITS, LOG_NOTICE, "b324c58eea2d43c2a1350a41659bdb8b")                                         \
        X(VM_POPULATED, LOG_INFO, "adbf8a4a592a462f9aad1ac6420c6fe5")                                       \
        X(VM_ATTACHED, LOG_INFO, "28ad3e4e130f457c87ab7b513e577cfe")                                        \
        X(VM_BUILT, LOG_INFO, "ad346debaffd4ec7910023cc72b9eab6")                                           \
        X(VM_RELEASED, LOG_INFO, "537ea54856a544a6bb7684fa10cc27fb")                                        \
        X(VMM_GONE, LOG_INFO, "aea46784250e4011b5311f98287d63f4")                                           \
        X(JOB_DONE, LOG_INFO, "2cde11400a404a74aafec2821c9b3e7f")                                           \
        X(JOB_FAILED, LOG_WARNING, "f1379fe2d47149d29c07ff829902d1e8")                                      \
        X(HOLE_LOST, LOG_NOTICE, "f9820880a6b943ac8f6e79f440a745c8")                                        \
        X(HOLES_HEALED, LOG_INFO, "7b6eca88e90d45aa9efea44305cb414e")                                       \
        X(HEAL_FAILED, LOG_WARNING, "bd49626f29184b0d96eea087c66aa1b0")                                     \
        X(EVENTS_DROPPED, LOG_NOTICE, "462f9425379949438952e73d87c67c9c")                                   \
        X(NOT_HEALED, LOG_WARNING, "abd2176b1ea44efd8d852e748676678a")                                      \
        X(ADDED_NOT_PINNED, LOG_WARNING, "00b2ec5a6703418aa428da44c3d928da")                                \
        X(ADDED_NOT_BUILT, LOG_WARNING, "8cde2134644c4009b3d27374aa12322c")                                 \
        X(STOPPING_WITH_VMS, LOG_WARNING, "3812e345e6d14141ae9ed1f02792b87e")                               \
        X(TAKEN_OVER, LOG_INFO, "88d281c1fb534d4a982785316f929015")                                         \
        X(VM_LOST, LOG_WARNING, "0dd80350e3e54c5fac9b9a8fa96fe1cf")                                         \
        X(LEFT_ALONE, LOG_WARNING, "dc4ac7c0a4ce4ec3836b75a244a53e6b")                                      \
        X(RECORD_NOT_WRITTEN, LOG_WARNING, "d8a28c522b6442688b18e6010d60a465")                              \
        X(VM_DRAINS, LOG_NOTICE, "1679225eb01448fc814bebec437fe7b5")                                        \
        X(POOL_SHORT, LOG_WARNING, "7c0bb8a0c3d24f1c8db68f86283f668e")                                      \
        X(POOL_CHANGED, LOG_NOTICE, "e36e369d23dc4806abb2a0774a0ed7a0")                                     \
        X(POOL_LOW, LOG_NOTICE, "2ce9660db67a4f178cb554ae32eb635c")                                         \
        X(VM_ADOPTED, LOG_INFO, "b2d3215a261a4f6f9972eda72e227cd6")                                         \
        X(NOT_ADOPTED, LOG_WARNING, "f785b6d0b89d4a57ab33fd33081b3801")                                     \
        X(OTHER_MEMORY, LOG_WARNING, "5d9f706f55004cd4b04c1aa1fccde8b8")                                    \
        X(CALIBRATED, LOG_INFO, "06a29c7c9f2c4f0cba448beec1382b6f")                                         \
        X(HANDOFF_OFFERED, LOG_INFO, "6bf743140f20478184868c2b3bb0756c")                                    \
        X(HANDOFF_PREPARED, LOG_INFO, "95258f498e0247198a19b6f89653c4da")                                   \
        X(HANDOFF_COMMITTED, LOG_NOTICE, "c35b62c40e464ed48a98ccaf513084bf")                                \
        X(HANDOFF_OWNED, LOG_NOTICE, "eac47794db8a4c0ba176a76234722ea7")                                    \
        X(HANDOFF_RELEASED, LOG_INFO, "cb2c116b00b84f3caa41e6252a9c0526")                                   \
        X(HANDOFF_ABORTED, LOG_NOTICE, "686bfebb003e4d918183cadd48a1360d")

typedef enum LogMessage {
#define LOG_MESSAGE_ENUM(name, level, id) MESSAGE_##name,
        LOG_MESSAGES(LOG_MESSAGE_ENUM)
#undef LOG_MESSAGE_ENUM
                        _LOG_MESSAGE_MAX,
} LogMessage;

typedef struct LogField {
        const char *name;
        const char *text; /* NULL: the number */
        uint64_t number;
} LogField;

/* More than that are left out, as are empty ones, and longer values are cut. */
#define LOG_LINE_MAX       1024U
#define LOG_FIELDS_MAX     12U
#define LOG_FIELD_TEXT_MAX 512U

static inline const char *log_text(const char *s) {
        return s ? s : "";
}

#define FIELD_TEXT(field, value)   ((LogField){ .name = field, .text = log_text(value) })
#define FIELD_NUMBER(field, value) ((LogField){ .name = field, .number = (value) })
#define FIELD_BYTES(value)         FIELD_NUMBER("TDP_BYTES", value)
#define FIELD_VM(vm)               FIELD_TEXT("TDP_VM", (vm)->name), FIELD_NUMBER("TDP_UID", (vm)->uid)
/* An array for log_message(): FIELDS(FIELD_VM(vm), FIELD_BYTES(n)). */
#define FIELDS(...) ((const LogField[]){ __VA_ARGS__, {} })

/* The line is for people, and says all by itself.  With an error, its text and ERRNO= are added. */
void log_message(LogMessage m, const LogField *fields, const char *format, ...) _printf_(3, 4);
int log_message_errno(LogMessage m, int error, const LogField *fields, const char *format, ...)
                _printf_(4, 5);

const char *log_message_id(LogMessage m);
int log_message_level(LogMessage m);
