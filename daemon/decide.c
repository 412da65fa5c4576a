/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "decide.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <systemd/sd-login.h>

#include "process.h"
#include "sysfs.h"

/* More arguments than any VMM has.  What is beyond is not looked at. */
#define CMDLINE_MAX KIB(512)

void decide_set_sender(DecideRequest *r, sd_bus_message *message) {
        __attribute__((cleanup(sd_bus_creds_unrefp))) sd_bus_creds *creds = NULL;

        if (sd_bus_query_sender_creds(message, SD_BUS_CREDS_EUID | SD_BUS_CREDS_PID, &creds) < 0)
                return;
        r->has_uid = sd_bus_creds_get_euid(creds, &r->uid) >= 0;
        if (sd_bus_creds_get_pid(creds, &r->pid) < 0)
                r->pid = 0;
}

int decide_read_vmm(pid_t pid, VMFacts *ret) {
        _cleanup_close_ int fd = -1;
        _cleanup_free_ char *buf = NULL;
        char path[64];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%i/cmdline", (int) pid);
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
                return -errno;
        buf = malloc(CMDLINE_MAX);
        if (!buf)
                return -ENOMEM;
        n = read_full(fd, buf, CMDLINE_MAX);
        if (n < 0)
                return (int) n;
        return vm_facts_parse(buf, (size_t) n, ret);
}

/* Only if a rule asks for it: it may go over a network. */
static char *user_name(uid_t uid) {
        _cleanup_free_ char *buf = malloc(KIB(16));
        struct passwd pw, *found = NULL;

        if (!buf || getpwuid_r(uid, &pw, buf, KIB(16), &found) != 0 || !found)
                return NULL;
        return strdup(found->pw_name);
}

int decide_prepare(Manager *m, const DecideRequest *r, VMOptions *o, const Rule **ret) {
        _cleanup_free_ char *user = NULL, *unit = NULL, *cgroup = NULL;
        RuleSubject subject = {
                .name = r->name,
                .bytes = r->bytes,
                .page_size = r->page_size ?: o->page_size,
                .has_uid = r->has_uid,
                .uid = r->uid,
        };
        const Rule *rule;
        VMFacts facts;

        if (r->pid_is_vmm && decide_read_vmm(r->pid, &facts) >= 0)
                vm_facts_merge(&o->facts, &facts);

        if (m->config.rules.n == 0) {
                *ret = NULL;
                return 0;
        }
        if (vm_facts_know(&o->facts, FACT_VCPUS))
                subject.vcpus = o->facts.values[FACT_VCPUS];
        if (r->pid > 0) {
                /* What it is not in, no rule can match. */
                (void) sd_pid_get_unit(r->pid, &unit);
                (void) sd_pid_get_cgroup(r->pid, &cgroup);
                subject.unit = unit;
                subject.cgroup = cgroup;
        }
        if (r->has_uid && rules_name_users(&m->config.rules))
                subject.user = user = user_name(r->uid);

        rule = rules_match(&m->config.rules, &subject);
        if (rule) {
                if (o->page_size == 0 && r->page_size == 0)
                        o->page_size = rule->page_size;
                if (!o->has_nodes && !o->has_cpus && o->n_parts == 0 && rule->nodes.is_set) {
                        o->has_nodes = true;
                        o->nodes = rule->nodes.ids;
                }
                if (!o->has_warm && rule->warm >= 0) {
                        o->has_warm = true;
                        o->warm = rule->warm;
                }
        }
        *ret = rule;
        return 0;
}

static int status_kib(const char *path, const char *key, uint64_t *ret) {
        _cleanup_free_ char *text = NULL;
        const char *p;
        uint64_t kib;
        int r;

        r = sysfs_read(&text, "%s", path);
        if (r < 0)
                return r;
        p = strstr(text, key);
        if (!p || sscanf(p + strlen(key), "%" SCNu64, &kib) != 1)
                return -EBADMSG;
        *ret = kib * 1024;
        return 0;
}

/* Memory in small pages that a VMM brings itself is allocated as the guest touches it.  A build touches all.
 */
static void look_at_memory(const DecideRequest *r, PolicyInput *in) {
        uint64_t resident = 0;
        char path[64];

        if (r->backed || !r->pid_is_vmm || r->page_size != KIB(4))
                return;
        snprintf(path, sizeof(path), "/proc/%i/status", (int) r->pid);
        if (status_kib(path, "\nVmRSS:", &resident) < 0 ||
            status_kib("/proc/meminfo", "\nMemAvailable:", &in->available_bytes) < 0)
                return;
        in->unbacked_bytes = r->bytes - MIN_OF(r->bytes, resident);
        in->available_known = true;
}

void decide(Manager *m, const DecideRequest *r, const VMOptions *o, const Rule *rule, PolicyOutput *ret) {
        PolicyInput in = {
                .asked = o->decision,
                .asked_is_set = o->has_decision,
                .by_rule = rule && rule->decision >= 0 ? (Decision) rule->decision : DECISION_AUTO,
                .by_rule_is_set = rule && rule->decision >= 0,
                .rule = rule ? rule->name : NULL,
                .bytes = r->bytes,
                .page_size = r->page_size,
                .max_level = o->max_level,
                .facts = o->facts,
                .dirty_log = r->dirty_log,
                .has_no_pages = r->has_no_pages,
        };

        if (r->pid_is_vmm)
                in.vmm_memlock_known = process_get_memlock(r->pid, &in.vmm_memlock_limit) >= 0;
        look_at_memory(r, &in);
        manager_policy_facts(m, &in);
        policy_decide(&in, ret);
}

char *decide_describe(const PolicyOutput *o) {
        char *text = NULL;
        size_t size;
        FILE *f;

        f = open_memstream(&text, &size);
        if (!f)
                return NULL;
        fputs(o->build ? "build" : "skip", f);
        for (size_t i = 0; i < o->n_reasons; i++)
                fprintf(f, "%s%s: %s", i == 0 ? " (" : "; ", o->reasons[i].word, o->reasons[i].text);
        if (o->rule[0])
                fprintf(f, "%srule %s", o->n_reasons == 0 ? " (" : "; ", o->rule);
        if (o->n_reasons > 0 || o->rule[0])
                fputc(')', f);
        if (fclose(f) != 0) {
                free(text);
                return NULL;
        }
        return text;
}
