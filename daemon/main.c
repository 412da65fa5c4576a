/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sysexits.h>

#include "handle.h"
#include "log.h"
#include "manager.h"
#include "worker.h"

static void help(void) {
        printf("tdpd [OPTIONS...]\n\n"
               "Reserves, populates, builds and pins the memory of virtual machines.\n\n"
               "  -h --help             Show this help\n"
               "     --version          Show the version\n"
               "     --config=FILE      Read FILE instead of " CONFIG_PATH_DEFAULT " and all drop-ins\n"
               "     --config-root=DIR  Look for the configuration below DIR instead of /\n"
               "     --bus=ADDRESS      Serve on this bus instead of the system bus\n"
               "     --sysfs-root=DIR   Read NUMA nodes and pools below DIR instead of /sys\n"
               "     --proc-root=DIR    Read load and memory pressure below DIR instead of /proc\n"
               "     --state-dir=DIR    Keep records of VMs in DIR instead of $RUNTIME_DIRECTORY\n"
               "     --data-dir=DIR     Keep measurements and records of handoffs in DIR instead of\n"
               "                        " DATA_DIR_DEFAULT "\n"
               "     --device=PATH      Use PATH instead of " KVM_DEVICE_DEFAULT "\n"
               "     --check-config     Read the configuration, say what is wrong with it, and end\n"
               "     --dump-config[=man]\n"
               "                        Print the configuration file with all defaults, or its\n"
               "                        part of tdpd.conf(5)\n\n"
               "See tdpd(8) and tdpd.conf(5).\n");
}

/* > 0: go on, 0: done. */
static int parse_argv(int argc, char *argv[], ManagerOptions *o) {
        enum {
                ARG_VERSION = 0x100,
                ARG_CONFIG,
                ARG_CONFIG_ROOT,
                ARG_CHECK_CONFIG,
                ARG_BUS,
                ARG_SYSFS_ROOT,
                ARG_PROC_ROOT,
                ARG_DEVICE,
                ARG_STATE_DIR,
                ARG_DATA_DIR,
                ARG_DUMP_CONFIG,
        };
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },
                { "version", no_argument, NULL, ARG_VERSION },
                { "config", required_argument, NULL, ARG_CONFIG },
                { "bus", required_argument, NULL, ARG_BUS },
                { "sysfs-root", required_argument, NULL, ARG_SYSFS_ROOT },
                { "proc-root", required_argument, NULL, ARG_PROC_ROOT },
                { "state-dir", required_argument, NULL, ARG_STATE_DIR },
                { "device", required_argument, NULL, ARG_DEVICE },
                { "config-root", required_argument, NULL, ARG_CONFIG_ROOT },
                { "check-config", no_argument, NULL, ARG_CHECK_CONFIG },
                { "dump-config", optional_argument, NULL, ARG_DUMP_CONFIG },
                { "data-dir", required_argument, NULL, ARG_DATA_DIR },
                {},
        };
        _cleanup_(config_done) Config config = {};
        bool check_config = false;
        ConfigError error;
        int c, r;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                switch (c) {
                case 'h':
                        help();
                        return 0;
                case ARG_VERSION:
                        printf("tdpd %s\n", TDPD_VERSION);
                        return 0;
                case ARG_CONFIG:
                        o->config.file = optarg;
                        break;
                case ARG_CONFIG_ROOT:
                        o->config.root = optarg;
                        break;
                case ARG_CHECK_CONFIG:
                        check_config = true;
                        break;
                case ARG_BUS:
                        o->bus_address = optarg;
                        break;
                case ARG_SYSFS_ROOT:
                        o->sysfs_root = optarg;
                        break;
                case ARG_PROC_ROOT:
                        o->proc_root = optarg;
                        break;
                case ARG_DEVICE:
                        o->device = optarg;
                        break;
                case ARG_STATE_DIR:
                        o->state_dir = optarg;
                        break;
                case ARG_DATA_DIR:
                        o->data_dir = optarg;
                        break;
                case ARG_DUMP_CONFIG:
                        if (!optarg)
                                return config_dump(stdout);
                        if (streq(optarg, "man"))
                                return config_dump_man(stdout);
                        fprintf(stderr,
                                "tdpd: --dump-config=%s makes no sense, =man does. Try 'tdpd --help'.\n",
                                optarg);
                        return -EINVAL;
                default: /* getopt has said what is wrong */
                        fprintf(stderr, "Try 'tdpd --help'.\n");
                        return -EINVAL;
                }

        if (optind < argc) {
                fprintf(stderr,
                        "tdpd: argument \"%s\" makes no sense, there are only options. Try 'tdpd --help'.\n",
                        argv[optind]);
                return -EINVAL;
        }
        if (o->config.file && o->config.root) {
                fprintf(stderr, "tdpd: --config= and --config-root= exclude each other.\n");
                return -EINVAL;
        }
        if (!check_config)
                return 1;

        r = config_load(&o->config, &config, &error);
        if (r < 0)
                fprintf(stderr, "tdpd: %s\n", error.text);
        return r;
}

static int block_signals(void) {
        sigset_t set;

        /* Before any thread: the event loop takes them from here. */
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -errno;
        if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
                return -errno;
        return worker_setup_signals();
}

int main(int argc, char *argv[]) {
        ManagerOptions options = { .sysfs_root = "/sys",
                                   .proc_root = "/proc",
                                   .device = KVM_DEVICE_DEFAULT,
                                   .state_dir = getenv("RUNTIME_DIRECTORY"),
                                   .data_dir = DATA_DIR_DEFAULT };
        _cleanup_(manager_freep) Manager *m = NULL;
        int r;

        log_setup();
        r = parse_argv(argc, argv, &options);
        if (r <= 0)
                return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;

        r = block_signals();
        if (r < 0)
                return log_error_errno(r, "Signals cannot be set up"), EXIT_FAILURE;
        r = manager_new(&options, &m);
        if (r < 0)
                return r == -EBADMSG ? EX_CONFIG : EXIT_FAILURE;
        r = manager_startup(m);
        if (r < 0)
                return EXIT_FAILURE;
        /* Without a bus the loop ends with a positive code: that is no success, and systemd starts us again.
         */
        r = manager_run(m);
        return r != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
