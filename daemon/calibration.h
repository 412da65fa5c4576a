/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What was measured on this host, and the file that keeps it: lines of text, for one model of CPU and one
 * kernel.  A file of any content is read without harm; what does not fit is not used, and it is said why.
 */

#include <stdio.h>

#include "cost.h"

#define DATA_DIR_DEFAULT "/var/lib/tdpd"

#define CALIBRATION_RATES_MAX 64U
#define CALIBRATION_HOST_MAX  160U

typedef struct CalibrationRate {
        uint32_t node;
        uint64_t page_size;
        uint64_t bytes_per_sec;
} CalibrationRate;

/* Where it was measured: it is worth nothing elsewhere. */
typedef struct CalibrationHost {
        char cpu[CALIBRATION_HOST_MAX];
        char kernel[CALIBRATION_HOST_MAX];
} CalibrationHost;

typedef struct CalibrationLeaf {
        uint64_t page_size;
        uint64_t fault_ns, build_ns; /* 0: not measured */
        char missing[160];           /* then: why */
} CalibrationLeaf;

typedef struct Calibration {
        CalibrationHost host;
        uint64_t measured_at; /* CLOCK_REALTIME, seconds */
        CalibrationLeaf leaves[COST_SIZES];
        CalibrationRate rates[CALIBRATION_RATES_MAX];
        size_t n_rates;
} Calibration;

/* The host that this runs on.  What cannot be found out is "unknown". */
void calibration_get_host(CalibrationHost *ret);

int calibration_write(FILE *f, const Calibration *c);
/* -EBADMSG: it is none, or not whole; -EPROTONOSUPPORT: it is of another version. */
int calibration_parse(const char *text, size_t size, Calibration *ret);

/* Written aside and renamed, so that there is always a whole one. */
int calibration_store(const char *dir, const Calibration *c);
/* -ENOENT: there is none; -ESTALE: it is of another host; and what calibration_parse() says.  "why" is a
 * sentence then. */
int calibration_load(const char *dir, const CalibrationHost *host, Calibration *ret, char *why,
                     size_t why_size);

/* Puts what was measured into the model. */
void calibration_apply(const Calibration *c, CostModel *m);
/* 0: not measured. */
uint64_t calibration_rate(const Calibration *c, uint32_t node, uint64_t page_size);
