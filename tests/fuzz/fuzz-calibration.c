/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a file of calibrations says, and what the model makes of it. */

#include <errno.h>
#include <math.h>

#include "calibration.h"
#include "fuzz.h"

static void check_line_text(const char *s, size_t size) {
        FUZZ_CHECK(memchr(s, '\0', size));
        for (; *s; s++)
                FUZZ_CHECK(*s >= ' ' && *s <= '~');
}

/* What has been read is written such that it is read as the same. */
static void round_trip(const Calibration *c) {
        _cleanup_free_ char *text = NULL, *again = NULL;
        size_t size, size_again;
        Calibration copy;
        FILE *f;

        f = open_memstream(&text, &size);
        FUZZ_CHECK(f && calibration_write(f, c) == 0 && fclose(f) == 0);
        FUZZ_CHECK(calibration_parse(text, size, &copy) == 0);
        f = open_memstream(&again, &size_again);
        FUZZ_CHECK(f && calibration_write(f, &copy) == 0 && fclose(f) == 0);
        FUZZ_CHECK(size == size_again && memcmp(text, again, size) == 0);
        FUZZ_CHECK(streq(c->host.cpu, copy.host.cpu) && streq(c->host.kernel, copy.host.kernel));
        FUZZ_CHECK(c->measured_at == copy.measured_at && c->n_rates == copy.n_rates);
        for (size_t i = 0; i < COST_SIZES; i++)
                FUZZ_CHECK(c->leaves[i].fault_ns == copy.leaves[i].fault_ns &&
                           c->leaves[i].build_ns == copy.leaves[i].build_ns &&
                           streq(c->leaves[i].missing, copy.leaves[i].missing));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        CostModel m;
        Calibration c;
        int r;

        r = calibration_parse((const char *) data, size, &c);
        if (r < 0) {
                FUZZ_CHECK(r == -EBADMSG || r == -EPROTONOSUPPORT);
                return 0;
        }
        check_line_text(c.host.cpu, sizeof(c.host.cpu));
        check_line_text(c.host.kernel, sizeof(c.host.kernel));
        FUZZ_CHECK(c.n_rates <= CALIBRATION_RATES_MAX);
        for (size_t i = 0; i < c.n_rates; i++)
                (void) calibration_rate(&c, c.rates[i].node, c.rates[i].page_size);
        round_trip(&c);

        cost_model_init(&m, 1000);
        calibration_apply(&c, &m);
        for (size_t i = 0; i < COST_SIZES; i++) {
                check_line_text(c.leaves[i].missing, sizeof(c.leaves[i].missing));
                /* Whatever was measured, a fault and a leaf cost something, and no more than a minute. */
                FUZZ_CHECK(isfinite(m.leaves[i].fault_ns) && m.leaves[i].fault_ns > 0 &&
                           m.leaves[i].fault_ns <= 6e10);
                FUZZ_CHECK(isfinite(m.leaves[i].build_ns) && m.leaves[i].build_ns > 0 &&
                           m.leaves[i].build_ns <= 6e10);
        }
        return 0;
}
