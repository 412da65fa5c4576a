/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "size.h"
#include "tdp/tdp.h"

/* What "tdpctl top" shows, apart from how: one sample of the daemon's numbers, its order, one frame of text.
 */

#define TOP_RATE_UNKNOWN (-1.0)

struct top_pool {
        uint32_t node;
        uint64_t page_size;
        uint64_t total, free, leased, warm; /* bytes */
};

struct top_vm {
        char *name, *state;
        uint64_t bytes, built, mapped, pinned, holes, faults;
        double fault_rate; /* per second, or TOP_RATE_UNKNOWN */
        char job[32];      /* "build 45%" */
};

/* Of no VM. */
struct top_job {
        uint32_t id;
        char text[64];
};

struct top_sample {
        uint64_t usec; /* CLOCK_MONOTONIC */
        char *version;
        struct top_pool *pools;
        struct top_vm *vms;
        struct top_job *jobs;
        size_t n_pools, n_vms, n_jobs, n_all_jobs;
};

/* Asks the daemon. A negative errno, with the words on the context. */
int top_read(struct tdp_ctx *ctx, struct top_sample *ret);
void top_sample_done(struct top_sample *s);
/* Fills in what only two samples together tell. Sorts both by name. */
void top_rates(struct top_sample *before, struct top_sample *now);

enum top_sort {
        TOP_SORT_NAME,
        TOP_SORT_MEMORY,
        TOP_SORT_PINNED,
        TOP_SORT_MAPPED,
        TOP_SORT_HOLES,
        TOP_SORT_FAULTS,
        TOP_SORT_JOB,
        _TOP_SORT_MAX,
};

/* Numbers: the largest first, mapped: the least first. reverse turns that round. Equal ones go by name. */
void top_sort(struct top_sample *s, enum top_sort sort, bool reverse);
/* The key that chooses the order, and its column. */
char top_sort_key(enum top_sort sort);

struct top_view {
        unsigned columns, rows; /* 0: no limit */
        bool color;
        enum top_sort sort;
        bool reverse;
        size_t first;        /* VM at the top; brought into range by each frame */
        const char *message; /* below the title, or NULL */
};

/* One frame: lines that end in "\n", none longer than the view has columns, and no more than it has rows. */
void top_draw(FILE *f, const struct top_sample *s, struct top_view *v);

enum top_key {
        TOP_KEY_NONE,
        TOP_KEY_QUIT,
        TOP_KEY_NOW,
        TOP_KEY_REVERSE,
        TOP_KEY_UP,
        TOP_KEY_DOWN,
        TOP_KEY_PAGE_UP,
        TOP_KEY_PAGE_DOWN,
        TOP_KEY_HOME,
        TOP_KEY_END,
        TOP_KEY_SORT, /* plus enum top_sort */
};

/*
 * Takes one key from the start of what was typed; returns the number of bytes it was, or 0 if more have to
 * come before it is one. What is none is TOP_KEY_NONE.
 */
size_t top_key_parse(const char *typed, size_t n, unsigned *ret_key);
