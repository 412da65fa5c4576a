/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* doctor: what of this host stands in the way. */

#include <string.h>

#include "daemon.h"
#include "doctor.h"
#include "json.h"
#include "log.h"
#include "verbs.h"

#define PING_USEC UINT64_C(1200000)

static void check_versions(struct doctor *d, const struct tdp_value *manager) {
        const char *version = tdp_value_get_string(tdp_value_find(manager, "Version")) ?: "unknown";
        const struct tdp_value *kernel = tdp_value_find(manager, "Kernel");
        const char *error = tdp_value_get_string(tdp_value_find(kernel, "error"));
        const char *mode = tdp_value_get_string(tdp_value_find(kernel, "mode")) ?: "unknown";

        if (strcmp(version, TDP_VERSION) != 0)
                doctor_report(d, "daemon", DOCTOR_NOTE,
                              "One of them is from before an upgrade: upgrades leave a tdpd that runs alone.",
                              "Run \"systemctl restart tdpd\": VMs are taken over. (Stop and start is not the same.)",
                              "tdpd is version %s, tdpctl is " TDP_VERSION, version);
        else
                doctor_report(d, "daemon", DOCTOR_OK, "tdpd and tdpctl are of one version.", NULL,
                              "tdpd answers, version %s", version);

        if (!tdp_value_get_bool(tdp_value_find(kernel, "device")) || (error && error[0]))
                doctor_report(d, "kernel-interface", DOCTOR_PROBLEM,
                              "tdpd reserves, populates and places memory, and can build no mappings.",
                              "See the findings on the module and the device.", "%s",
                              error && error[0] ? error : "tdpd has no /dev/kvm-gtdp");
        else if (strcmp(mode, "shadow") == 0 || strcmp(mode, "none") == 0)
                doctor_report(d, "kernel-interface", DOCTOR_PROBLEM,
                              "There is no second-level page table that could be built.",
                              "See the finding on paging.", "KVM's paging mode is %s", mode);
        else
                doctor_report(d, "kernel-interface", DOCTOR_OK, "tdpd and the kernel understand each other.",
                              NULL, "%s, ABI %llu", mode,
                              (unsigned long long) tdp_value_get_uint(
                                              tdp_value_find(kernel, "abi-version")));
}

/* Not daemon_connect(): that a daemon is missing is a finding, and no reason to say nothing else. */
static void check_daemon(struct doctor *d) {
        _cleanup_(tdp_unrefp) struct tdp_ctx *ctx = NULL;
        _cleanup_(tdp_value_freep) struct tdp_value *manager = NULL;
        int r;

        r = tdp_new(&ctx);
        if (r < 0) {
                d->no_memory = true;
                return;
        }
        r = tdp_ping(ctx, PING_USEC);
        if (r >= 0)
                r = tdp_get_manager(ctx, &manager);
        if (r >= 0)
                check_versions(d, manager);
        else
                doctor_report(d, "daemon", DOCTOR_PROBLEM, "Nobody builds or reserves anything.",
                              "See \"systemctl status tdpd\"; start it with \"systemctl start tdpd\".",
                              "tdpd cannot be reached: %s", tdp_error_message(ctx));
}

static json_object *finding_to_json(const struct finding *f) {
        json_object *o = json_object_new_object();

        json_add_string(o, "check", f->check);
        json_add_string(o, "level", doctor_level_to_string(f->level));
        json_add_string(o, "found", f->found);
        json_add_string(o, "means", f->means);
        json_add_string(o, "todo", f->todo);
        return o;
}

static void print_findings(const struct args *args, const struct doctor *d) {
        size_t problems = doctor_count(d, DOCTOR_PROBLEM), notes = doctor_count(d, DOCTOR_NOTE);

        for (size_t i = 0; i < d->n_findings; i++) {
                const struct finding *f = &d->findings[i];

                if (args->quiet && f->level != DOCTOR_PROBLEM)
                        continue;
                printf("%7s  %s: %s.\n", doctor_level_to_string(f->level), f->check, f->found);
                printf("%7s  %s\n", "", f->means);
                if (f->todo)
                        printf("%7s  -> %s\n", "", f->todo);
        }
        if (!args->no_legend && !args->quiet)
                printf("\n%zu problem%s, %zu note%s, %zu ok.\n", problems, problems == 1 ? "" : "s", notes,
                       notes == 1 ? "" : "s", doctor_count(d, DOCTOR_OK));
}

int verb_doctor(const struct args *args) {
        _cleanup_(doctor_done) struct doctor d = { .root = args->root ?: "" };
        int code;

        if (args->host) {
                (void) log_error(0, "\"doctor\" looks at this host: --host has no meaning for it. Use ssh.");
                return EXIT_USAGE;
        }
        if (args->root && access(args->root, R_OK | X_OK) < 0) {
                (void) log_error(0, "--root=%s cannot be read: %s", args->root, strerror(errno));
                return EXIT_USAGE;
        }

        doctor_examine(&d);
        if (!args->root) /* another root may be another host: its daemon is not ours to ask */
                check_daemon(&d);
        if (d.no_memory) {
                (void) log_error(0, "Out of memory.");
                return EXIT_FAILED;
        }

        code = doctor_count(&d, DOCTOR_PROBLEM) > 0 ? EXIT_FAILED : EXIT_OK;
        if (args->json != JSON_OFF) {
                json_object *o = json_object_new_object(), *array = json_object_new_array();

                for (size_t i = 0; i < d.n_findings; i++)
                        json_object_array_add(array, finding_to_json(&d.findings[i]));
                json_add_uint(o, "problems", doctor_count(&d, DOCTOR_PROBLEM));
                json_add_uint(o, "notes", doctor_count(&d, DOCTOR_NOTE));
                json_object_object_add(o, "findings", array);
                return json_print(args, o) < 0 ? EXIT_FAILED : code;
        }
        print_findings(args, &d);
        return code;
}
