/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TDP_TDP_H
#define TDP_TDP_H

/*
 * libtdp: talk to tdpd, the daemon that owns a host's huge pages and builds
 * and keeps whole second-level mappings (EPT, NPT) of its virtual machines.
 *
 * Conventions
 *
 * - Functions return 0 or a positive value on success, and a negative errno on
 *   failure.  ret_ parameters are written on success only.
 * - After a failure tdp_error_name() and tdp_error_message() tell more.
 * - Sizes and addresses are bytes, times are microseconds.
 * - The library never prints and has no global state.  A context, and all that
 *   was obtained from it, may be used by one thread at a time, and not by a
 *   process forked off.
 * - VMs, jobs and handoffs hold a reference to their context: they may outlive
 *   the caller's.  Nodes, values, options, plans, messages and memory do not need it.
 * - Strings returned as "const char *" belong to the object they were asked of.
 * - free and unref functions accept NULL, and return NULL.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tdp_ctx;
struct tdp_options;
struct tdp_value;
struct tdp_vm;
struct tdp_node;
struct tdp_job;
struct tdp_memory;
struct tdp_plan;
struct tdp_handoff;
struct tdp_message;

/* ---- Context ----------------------------------------------------------- */

/* Makes a context. Nothing is connected before the first call. -ENOMEM. */
int tdp_new(struct tdp_ctx **ret_ctx);
struct tdp_ctx *tdp_ref(struct tdp_ctx *ctx);
struct tdp_ctx *tdp_unref(struct tdp_ctx *ctx);

/*
 * Where the daemon is, instead of this host's system bus: a D-Bus address, or
 * "[user@]host" to be reached with ssh. NULL: back to the default.
 * -EISCONN: a call has been made already.
 */
int tdp_set_address(struct tdp_ctx *ctx, const char *address);
int tdp_set_host(struct tdp_ctx *ctx, const char *host);

/* How long a call waits for its answer; 0, the default: 25 s. Jobs have no limit. */
int tdp_set_timeout(struct tdp_ctx *ctx, uint64_t usec);

/* Called for each message of at most this syslog priority (default LOG_WARNING). */
typedef void (*tdp_log_fn_t)(int priority, const char *file, int line, const char *func, const char *format,
                             va_list ap, void *userdata)
#ifdef __GNUC__
                __attribute__((format(printf, 5, 0)))
#endif
                ;
void tdp_set_log_fn(struct tdp_ctx *ctx, tdp_log_fn_t fn, void *userdata);
void tdp_set_log_priority(struct tdp_ctx *ctx, int priority);

/*
 * The last failure on this context. The name is a D-Bus error, such as
 * "org.tdpd1.Error.NoPages", or NULL if the failure is local. The message is
 * never NULL. Both are valid until the next call on the context.
 *
 * Errors of the daemon, and what calls return for them:
 *
 *   InvalidArgument -EINVAL     NoSuchVM, NoSuchJob, NoSuchNode -ENOENT
 *   NameTaken -EEXIST           NoPages -ENOMEM         Partial -ENOSPC
 *   NotPermitted -EACCES        Unsupported -EOPNOTSUPP Busy -EBUSY
 *   NoSuchProcess -ESRCH        NotVMM -EMEDIUMTYPE     SeveralVMs -ENOTUNIQ
 *   LimitExceeded -EDQUOT       Canceled -ECANCELED     Failed -EIO
 *   InvalidConfig, BadMessage -EBADMSG                  NoSuchHandoff -ENOENT
 *   Stale -ESTALE               TooNew -EPROTONOSUPPORT Mismatch -EREMCHG
 *   TooEarly -EINPROGRESS       TooLate -EALREADY       Expired -ETIME
 *
 * -EHOSTDOWN: the daemon is not on the bus, or went away.
 * -EPERM: what has its name on the bus is neither root's nor your own, and is not trusted.
 * -ENOTCONN: the bus cannot be reached.  -ETIMEDOUT: no answer in time.
 */
const char *tdp_error_name(const struct tdp_ctx *ctx);
const char *tdp_error_message(const struct tdp_ctx *ctx);

/* Whether the daemon answers within that time. 0: 25 s. */
int tdp_ping(struct tdp_ctx *ctx, uint64_t timeout_usec);

/* ---- Values ------------------------------------------------------------ */

/*
 * What the daemon tells is kept as a tree of values, so that what a later
 * daemon adds can be read with this library. The key is NULL for elements of a
 * plain list.
 */
enum tdp_value_type {
        TDP_VALUE_BOOL = 1,
        TDP_VALUE_UINT = 2,
        TDP_VALUE_INT = 3,
        TDP_VALUE_DOUBLE = 4,
        TDP_VALUE_STRING = 5,
        TDP_VALUE_LIST = 6, /* array or structure: children without keys */
        TDP_VALUE_DICT = 7, /* children with keys */
};

enum tdp_value_type tdp_value_get_type(const struct tdp_value *value);
const char *tdp_value_get_key(const struct tdp_value *value);

/* 0, false or NULL for a value of another type, or for no value (NULL). */
uint64_t tdp_value_get_uint(const struct tdp_value *value);
int64_t tdp_value_get_int(const struct tdp_value *value);
double tdp_value_get_double(const struct tdp_value *value);
bool tdp_value_get_bool(const struct tdp_value *value);
const char *tdp_value_get_string(const struct tdp_value *value);

/* Children. tdp_value_at() counts from 0. NULL: there is no such child. */
const struct tdp_value *tdp_value_get_first(const struct tdp_value *parent);
const struct tdp_value *tdp_value_get_next(const struct tdp_value *value);
const struct tdp_value *tdp_value_find(const struct tdp_value *parent, const char *key);
const struct tdp_value *tdp_value_at(const struct tdp_value *parent, unsigned index);

#define tdp_value_foreach(parent, value)                                                                    \
        for ((value) = tdp_value_get_first(parent); (value); (value) = tdp_value_get_next(value))

/* ---- Manager ----------------------------------------------------------- */

/*
 * All properties of org.tdpd1.Manager: Version, Features, Policy, Kernel.
 * The caller frees the value.
 */
int tdp_get_manager(struct tdp_ctx *ctx, struct tdp_value **ret_properties);
struct tdp_value *tdp_value_free(struct tdp_value *value);

/*
 * Options of reserve, attach, build and explain. Known keys of this version
 * (the daemon has the last word, and refuses what it does not know):
 *
 *   page-size u64, nodes string ("0-1,3"), cpus string ("0-7,16"), parts string
 *   ("0:3G,1:1G"), numa-mode string (auto, strict, preferred, interleave), warm bool, wait-usec u64
 *   (reserve: waits so long for pages), decision string (auto, always, never), vcpus u32, max-level u32 (0:
 * no limit, 1: 4K, 2: 2M, 3: 1G), auto-slots bool, gpa u64, size u64
 *
 * Setting a key again replaces it. -ENOMEM, -EINVAL: key is NULL or empty.
 */
int tdp_options_new(struct tdp_options **ret_options);
struct tdp_options *tdp_options_free(struct tdp_options *options);
int tdp_options_set_u64(struct tdp_options *options, const char *key, uint64_t value);
int tdp_options_set_u32(struct tdp_options *options, const char *key, uint32_t value);
int tdp_options_set_bool(struct tdp_options *options, const char *key, bool value);
int tdp_options_set_string(struct tdp_options *options, const char *key, const char *value);
/* Since 1.3, as page-sizes of an offer. -EINVAL also for an empty list. */
int tdp_options_set_u64_list(struct tdp_options *options, const char *key, const uint64_t *values, size_t n);

/*
 * Claims, allocates and populates memory for a VM to come. Returns at once;
 * wait for the job. options may be NULL, and so may each ret_ parameter.
 */
int tdp_reserve(struct tdp_ctx *ctx, const char *name, uint64_t bytes, const struct tdp_options *options,
                struct tdp_vm **ret_vm, struct tdp_job **ret_job);

/*
 * Adopts a running VM: by its KVM VM file descriptor (which stays the
 * caller's; pid 0: the caller owns the VM), or by the pid of its VMM, from
 * which the daemon takes the descriptor. A name in state "populated" is joined.
 */
int tdp_attach(struct tdp_ctx *ctx, const char *name, int vm_fd, uint32_t pid,
               const struct tdp_options *options, struct tdp_vm **ret_vm, struct tdp_job **ret_job);
int tdp_attach_pid(struct tdp_ctx *ctx, const char *name, uint32_t pid, const struct tdp_options *options,
                   struct tdp_vm **ret_vm, struct tdp_job **ret_job);

/*
 * Measures what mapping costs on this host, for decisions to come. The job takes some seconds, and a few
 * free pages for as long. tdp_get_manager() has what came of it, as "Calibration".
 */
int tdp_calibrate(struct tdp_ctx *ctx, const struct tdp_options *options, struct tdp_job **ret_job);

/* What would be decided for such a VM, and why. No side effect. name may be NULL. */
int tdp_explain(struct tdp_ctx *ctx, const char *name, uint64_t bytes, const struct tdp_options *options,
                struct tdp_plan **ret_plan);
struct tdp_plan *tdp_plan_free(struct tdp_plan *plan);
const char *tdp_plan_get_decision(const struct tdp_plan *plan);            /* "build" or "skip" */
const struct tdp_value *tdp_plan_get_reasons(const struct tdp_plan *plan); /* list of (word, sentence) */
const struct tdp_value *tdp_plan_get_plan(const struct tdp_plan *plan);    /* dict */

/* ---- VMs --------------------------------------------------------------- */

/*
 * Lists are chains: the first element, which is NULL if there is none, owns
 * those behind it. A VM got by name is a chain of one.
 */
int tdp_list_vms(struct tdp_ctx *ctx, struct tdp_vm **ret_first);
int tdp_get_vm(struct tdp_ctx *ctx, const char *name, struct tdp_vm **ret_vm);
int tdp_get_vm_by_pid(struct tdp_ctx *ctx, uint32_t pid, struct tdp_vm **ret_vm);
struct tdp_vm *tdp_vm_free(struct tdp_vm *first);
struct tdp_vm *tdp_vm_get_next(const struct tdp_vm *vm);

#define tdp_vm_foreach(first, vm) for ((vm) = (first); (vm); (vm) = tdp_vm_get_next(vm))

const char *tdp_vm_get_name(const struct tdp_vm *vm);
const char *tdp_vm_get_path(const struct tdp_vm *vm);
const char *tdp_vm_get_state(const struct tdp_vm *vm); /* as of the last refresh or list */
uint32_t tdp_vm_get_pid(const struct tdp_vm *vm);      /* 0: none yet */
uint64_t tdp_vm_get_bytes(const struct tdp_vm *vm);

/* Reads all properties of org.tdpd1.VM. They are NULL before the first refresh. */
int tdp_vm_refresh(struct tdp_vm *vm);
const struct tdp_value *tdp_vm_get_properties(const struct tdp_vm *vm);

/* Builds (again) all slots. */
int tdp_vm_build(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job);

/*
 * Maps again what was built and lost, as far as its memory is there; splits large leaves ahead of dirty
 * logging; makes large leaves again. Of the whole VM, or of the range given by options gpa and size (u64,
 * both). Split takes max-level (u32, the largest leaf that may stay; 0 is 4K) and so does collapse (0: no
 * limit). -EOPNOTSUPP: the kernel part is older than the daemon. Since 1.1 of the library's symbols.
 */
int tdp_vm_heal(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job);
int tdp_vm_split(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job);
int tdp_vm_collapse(struct tdp_vm *vm, const struct tdp_options *options, struct tdp_job **ret_job);

/*
 * Lets pins, memory and the kernel's handle go. A running guest goes on. Returns when pins and pages are
 * back; the default timeout is 3 min here.
 */
int tdp_vm_release(struct tdp_vm *vm);

/*
 * The VM's memory: a chain with one element for each node part. Descriptors are
 * close-on-exec and belong to the chain, unless they are taken.
 */
int tdp_vm_get_memory(struct tdp_vm *vm, struct tdp_memory **ret_first);
struct tdp_memory *tdp_memory_free(struct tdp_memory *first);
struct tdp_memory *tdp_memory_get_next(const struct tdp_memory *memory);

#define tdp_memory_foreach(first, m) for ((m) = (first); (m); (m) = tdp_memory_get_next(m))

const char *tdp_memory_get_name(const struct tdp_memory *memory);
uint64_t tdp_memory_get_bytes(const struct tdp_memory *memory);
uint32_t tdp_memory_get_node(const struct tdp_memory *memory);
int tdp_memory_get_fd(const struct tdp_memory *memory);
int tdp_memory_take_fd(struct tdp_memory *memory); /* the caller closes it */

/* ---- Nodes ------------------------------------------------------------- */

/* NUMA nodes with their page pools: all properties of org.tdpd1.Node are read. */
int tdp_list_nodes(struct tdp_ctx *ctx, struct tdp_node **ret_first);
struct tdp_node *tdp_node_free(struct tdp_node *first);
struct tdp_node *tdp_node_get_next(const struct tdp_node *node);

#define tdp_node_foreach(first, node) for ((node) = (first); (node); (node) = tdp_node_get_next(node))

uint32_t tdp_node_get_id(const struct tdp_node *node);
const struct tdp_value *tdp_node_get_properties(const struct tdp_node *node);

/*
 * Changes the pool of this page size (bytes): to so many pages, or with the option mode "grow" or "shrink"
 * by so many. Options: mode string, allow-partial bool, drop-caches bool. For root, or who polkit lets.
 */
int tdp_set_pool(struct tdp_ctx *ctx, uint32_t node, uint64_t page_size, uint64_t pages,
                 const struct tdp_options *options, struct tdp_job **ret_job);

/*
 * Who has huge pages: a list of (page size, node or -1, pages, pid, uid, kind, name, file). kind is "vm"
 * (name is the VM's), "process" or "file" (open, and mapped by nobody). complete: all processes were looked
 * at. The list is freed with tdp_value_free().
 */
int tdp_list_holders(struct tdp_ctx *ctx, struct tdp_value **ret_holders, bool *ret_complete);

/* ---- Jobs -------------------------------------------------------------- */

int tdp_list_jobs(struct tdp_ctx *ctx, struct tdp_job **ret_first);
struct tdp_job *tdp_job_free(struct tdp_job *first); /* the job itself goes on */
struct tdp_job *tdp_job_get_next(const struct tdp_job *job);

#define tdp_job_foreach(first, job) for ((job) = (first); (job); (job) = tdp_job_get_next(job))

uint32_t tdp_job_get_id(const struct tdp_job *job);
const char *tdp_job_get_type(const struct tdp_job *job);  /* reserve, attach, build, heal, split, collapse */
const char *tdp_job_get_state(const struct tdp_job *job); /* running, canceling */
const char *tdp_job_get_vm_name(const struct tdp_job *job);
const char *tdp_job_get_phase(const struct tdp_job *job); /* populate, or the type's; NULL: not known */
uint64_t tdp_job_get_done(const struct tdp_job *job);     /* bytes of the phase */
uint64_t tdp_job_get_total(const struct tdp_job *job);

/* Reads the job's properties. -ENOENT: it has ended. */
int tdp_job_refresh(struct tdp_job *job);

/*
 * Waits for the end of a job that this context started or listed. The callback
 * (may be NULL) runs about ten times a second, with refreshed properties; a
 * negative return cancels the job and goes on waiting for its end.
 *
 * 0: done. -ECANCELED: canceled, by whomever. -EHOSTDOWN: the daemon went away
 * meanwhile. Otherwise the job failed, with the error that it failed with.
 */
typedef int (*tdp_job_progress_fn_t)(const struct tdp_job *job, void *userdata);
int tdp_job_wait(struct tdp_job *job, tdp_job_progress_fn_t fn, void *userdata);

/* Asks the job to stop. Its end is still to be waited for. -ENOENT: no such job. */
int tdp_job_cancel(struct tdp_job *job);
int tdp_cancel_job(struct tdp_ctx *ctx, uint32_t id);

/* ---- Handoffs ---------------------------------------------------------- */

/*
 * A VM changes host: the tdpd of both hosts exchange messages, which the caller carries. A message is
 * opaque, 64 KiB at most, and may be lost, come twice, late, or in another order. It holds what gives a
 * right to memory, and is nobody else's to read. docs/HANDOFF.md has the sequence. All of it since 1.3 of
 * the library's symbols, for root, or who polkit lets.
 *
 * Where a call returns a message, there may be none to carry: then it is NULL.
 */
#define TDP_MESSAGE_MAX 65536U

/* A copy of what was carried. -EMSGSIZE: more than TDP_MESSAGE_MAX. -EINVAL: nothing. -ENOMEM. */
int tdp_message_new(const void *data, size_t size, struct tdp_message **ret_message);
struct tdp_message *tdp_message_free(struct tdp_message *message);
const void *tdp_message_get_data(const struct tdp_message *message);
size_t tdp_message_get_size(const struct tdp_message *message);

/*
 * On the source: offers the VM. Options: deadline-usec u64, page-sizes list of u64 (that will do, best
 * first), post-copy bool. On the destination: makes room for it, with the options of tdp_reserve(); returns
 * at once. The answer is NULL until the job is done (then tdp_handoff_next() has it); the job is NULL if
 * there is none, as the same offer was prepared before. -EEXIST: a VM of that name is there. -ESTALE: a
 * later generation of it has been seen. -ENOMEM: not enough pages. -EOPNOTSUPP: not with this tdpd, or its
 * peer's version.
 */
int tdp_vm_offer_handoff(struct tdp_vm *vm, const struct tdp_options *options,
                         struct tdp_handoff **ret_handoff, struct tdp_message **ret_offer);
int tdp_prepare_incoming(struct tdp_ctx *ctx, const struct tdp_message *offer,
                         const struct tdp_options *options, struct tdp_handoff **ret_handoff,
                         struct tdp_message **ret_answer, struct tdp_job **ret_job);

/*
 * Gives a message, of any kind but an offer, to the handoff that it is for. The reply is for the other side.
 * The handoff is NULL if there is no such one here.
 */
int tdp_deliver_handoff(struct tdp_ctx *ctx, const struct tdp_message *message,
                        struct tdp_handoff **ret_handoff, struct tdp_message **ret_reply);

/* The list is a chain. A handoff is found by its id (32 hexadecimal digits) and role ("source",
 * "destination").
 */
int tdp_list_handoffs(struct tdp_ctx *ctx, struct tdp_handoff **ret_first);
int tdp_get_handoff(struct tdp_ctx *ctx, const char *id, const char *role, struct tdp_handoff **ret_handoff);
struct tdp_handoff *tdp_handoff_free(struct tdp_handoff *first); /* the handoff itself goes on */
struct tdp_handoff *tdp_handoff_get_next(const struct tdp_handoff *handoff);

#define tdp_handoff_foreach(first, h) for ((h) = (first); (h); (h) = tdp_handoff_get_next(h))

const char *tdp_handoff_get_path(const struct tdp_handoff *handoff);
const char *tdp_handoff_get_id(const struct tdp_handoff *handoff);
const char *tdp_handoff_get_vm_name(const struct tdp_handoff *handoff);
const char *tdp_handoff_get_role(const struct tdp_handoff *handoff);
const char *tdp_handoff_get_state(const struct tdp_handoff *handoff); /* as of the last refresh or list */

/* Reads all properties of org.tdpd1.Handoff. They are NULL before. -ENOENT: it is gone. */
int tdp_handoff_refresh(struct tdp_handoff *handoff);
const struct tdp_value *tdp_handoff_get_properties(const struct tdp_handoff *handoff);

/*
 * Until the daemon tells that something of it has changed, so long at most. 1: its state is what was told,
 * all else is for a refresh. 0: nothing was told, which may have been lost if the daemon was restarted. The
 * first call begins to listen: what was told before it is not seen.
 */
int tdp_handoff_wait(struct tdp_handoff *handoff, uint64_t timeout_usec);

/* What this side has to say now and has not been taken yet. */
int tdp_handoff_next(struct tdp_handoff *handoff, struct tdp_message **ret_message);

/*
 * Start: the VMM is about to copy; options: logging string (none, bitmap, ring), split-leaf u64.
 * Commit: all that belongs before the switch is over there, and the VM stands still, and goes on doing so
 * until it is known who owns it; options: post-copy bool, bytes-left u64. Both on the source.
 * Arrived: post-copy has brought the rest; on the destination.
 * Cancel: -EALREADY if it is too late for that. text, for the other side, may be NULL.
 * Forget: drops the record of a handoff that has ended.
 */
int tdp_handoff_start(struct tdp_handoff *handoff, const struct tdp_options *options,
                      struct tdp_message **ret_start);
int tdp_handoff_commit(struct tdp_handoff *handoff, const struct tdp_options *options,
                       struct tdp_message **ret_commit);
int tdp_handoff_arrived(struct tdp_handoff *handoff);
int tdp_handoff_cancel(struct tdp_handoff *handoff, const char *text);
int tdp_handoff_forget(struct tdp_handoff *handoff);

/* ---- Without tdpd's kernel --------------------------------------------- */

/*
 * For a VMM that links this library, on a kernel from 6.11 on: has KVM map
 * [gpa, gpa + size) (multiples of 4 KiB) from inside the VMM, through one of
 * its vCPUs, which must not be running. No daemon is involved. ret_done (may be
 * NULL) is written on failure, too: the bytes mapped before it.
 *
 * Returns TDP_MAPPED_ONCE: nothing is pinned, and what the kernel unmaps later
 * comes back on demand only.
 * -EOPNOTSUPP: not in this kernel, or not with shadow paging. -ENOENT: no
 * memory slot at that address. -EAGAIN: slots keep changing there, for 2 s now.
 * -EINVAL, -EINTR, -EFAULT, -EIO as from KVM.
 */
enum tdp_mapping {
        TDP_NOT_MAPPED = 0,
        TDP_MAPPED_ONCE = 1,
        TDP_MAPPED_AND_HELD = 2,
};
int tdp_prefault_vcpu(struct tdp_ctx *ctx, int vcpu_fd, uint64_t gpa, uint64_t size, uint64_t *ret_done);
const char *tdp_mapping_to_string(enum tdp_mapping mapping); /* like "mapped once, not held" */

#ifdef __cplusplus
}
#endif

#endif /* TDP_TDP_H */
