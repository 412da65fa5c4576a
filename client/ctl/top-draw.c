/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Frames of "top". */

#include <inttypes.h>
#include <string.h>

#include "cleanup.h"
#include "top.h"

#define BAR_MIN        10U
#define BAR_MAX        50U
#define NAME_MIN       8U
#define NAME_MAX       40U
#define LINE_MAX_BYTES 512U

#define BOLD    "\033[1m"
#define REVERSE "\033[7m"
#define RESET   "\033[0m"

struct frame {
        FILE *f;
        const struct top_view *view;
        unsigned lines;
};

static unsigned columns(const struct frame *fr) {
        return fr->view->columns > 0 && fr->view->columns < LINE_MAX_BYTES ? fr->view->columns
                                                                           : LINE_MAX_BYTES - 1;
}

static bool full(const struct frame *fr) {
        return fr->view->rows > 0 && fr->lines >= fr->view->rows;
}

/* What the daemon says goes to a terminal, which has a language of its own. */
static void put(const struct frame *fr, const char *text, unsigned n) {
        for (; *text != '\0' && n > 0; text++, n--)
                fputc(*text >= ' ' && *text <= '~' ? *text : '?', fr->f);
}

static void line(struct frame *fr, const char *style, const char *format, ...) _printf_(3, 4);
static void line(struct frame *fr, const char *style, const char *format, ...) {
        char text[LINE_MAX_BYTES];
        va_list ap;
        size_t n;

        if (full(fr))
                return;
        va_start(ap, format);
        (void) vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        for (n = strlen(text); n > 0 && text[n - 1] == ' ';)
                text[--n] = '\0';
        if (fr->view->color && style)
                fputs(style, fr->f);
        put(fr, text, columns(fr));
        if (fr->view->color && style)
                fputs(RESET, fr->f);
        fputc('\n', fr->f);
        fr->lines++;
}

static void title(struct frame *fr, const struct top_sample *s) {
        char memory[SIZE_TEXT_MAX], pinned[SIZE_TEXT_MAX];
        uint64_t bytes = 0, pins = 0;
        size_t built = 0;

        for (size_t i = 0; i < s->n_vms; i++) {
                bytes += s->vms[i].bytes;
                pins += s->vms[i].pinned;
                built += strcmp(s->vms[i].state, "built") == 0;
        }
        line(fr, BOLD, "tdpd %s   VMs: %zu, %zu built, %s of memory, %s pinned   jobs: %zu", s->version,
             s->n_vms, built, size_format(bytes, memory), size_format(pins, pinned), s->n_all_jobs);
        if (fr->view->message)
                line(fr, REVERSE, "%s", fr->view->message);
}

struct part {
        uint64_t bytes;
        char letter;
        const char *color;
};

/* Every part that is there can be seen, however small; rounding goes to the free pages, which come last. */
static void bar(const struct frame *fr, const struct part *parts, size_t n_parts, uint64_t total,
                unsigned width) {
        unsigned left = width;

        for (size_t i = 0; i < n_parts; i++) {
                unsigned n = total > 0 ? (unsigned) ((double) parts[i].bytes / (double) total * width + 0.5)
                                       : 0;

                if (n == 0 && parts[i].bytes > 0)
                        n = 1;
                if (i == n_parts - 1 || n > left)
                        n = left;
                left -= n;
                if (n == 0)
                        continue;
                if (fr->view->color)
                        fputs(parts[i].color, fr->f);
                for (unsigned k = 0; k < n; k++)
                        fputc(parts[i].letter, fr->f);
                if (fr->view->color)
                        fputs(RESET, fr->f);
        }
}

static void pool(struct frame *fr, const struct top_pool *p) {
        /* Leased memory that is still being allocated is free for the kernel. */
        uint64_t used = p->total - (p->free < p->total ? p->free : p->total), rest = used, leased, warm;
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX], c[SIZE_TEXT_MAX], d[SIZE_TEXT_MAX], e[SIZE_TEXT_MAX];
        char size[SIZE_TEXT_MAX], left[64], right[LINE_MAX_BYTES];
        unsigned taken, width;

        if (full(fr))
                return;
        leased = p->leased < rest ? p->leased : rest;
        rest -= leased;
        warm = p->warm < rest ? p->warm : rest;
        rest -= warm;

        (void) snprintf(left, sizeof(left), "node %-3" PRIu32 " %5s", p->node,
                        size_format(p->page_size, size));
        (void) snprintf(right, sizeof(right), "%s: %s leased, %s warm, %s others, %s free",
                        size_format(p->total, a), size_format(p->leased, b), size_format(p->warm, c),
                        size_format(rest, d), size_format(p->total - used, e));

        taken = (unsigned) (strlen(left) + strlen(right) + strlen(" [] "));
        width = columns(fr) > taken ? columns(fr) - taken : 0;
        if (width > BAR_MAX)
                width = BAR_MAX;
        if (width < BAR_MIN) {
                line(fr, NULL, "%s %s", left, right);
                return;
        }
        fprintf(fr->f, "%s [", left);
        bar(fr,
            (const struct part[]){
                            { leased, '#', "\033[32m" },
                            { warm, '+', "\033[36m" },
                            { rest, '=', "\033[33m" },
                            { p->total - used, '.', "\033[2m" },
            },
            4, p->total, width);
        fprintf(fr->f, "] %s\n", right);
        fr->lines++;
}

/* Half of the screen at most, or there is no place for VMs. */
static void pools(struct frame *fr, const struct top_sample *s) {
        size_t n = s->n_pools;

        if (fr->view->rows > 0 && n > fr->view->rows / 2)
                n = fr->view->rows / 2;
        for (size_t i = 0; i < n; i++)
                pool(fr, &s->pools[i]);
        if (n < s->n_pools)
                line(fr, NULL, "(%zu more pools: tdpctl nodes)", s->n_pools - n);
        if (s->n_pools == 0)
                line(fr, NULL, "There are no pools of huge pages.");
}

static void jobs(struct frame *fr, const struct top_sample *s) {
        for (size_t i = 0; i < s->n_jobs && i < 3; i++)
                line(fr, NULL, "job %" PRIu32 ": %s", s->jobs[i].id, s->jobs[i].text);
}

static const struct {
        char key;
        const char *header;
} sorts[_TOP_SORT_MAX] = {
        [TOP_SORT_NAME] = { 'n', "NAME" },     [TOP_SORT_MEMORY] = { 'm', "MEMORY" },
        [TOP_SORT_PINNED] = { 'p', "PINNED" }, [TOP_SORT_MAPPED] = { 'M', "MAPPED" },
        [TOP_SORT_HOLES] = { 'h', "HOLES" },   [TOP_SORT_FAULTS] = { 'f', "FAULTS/S" },
        [TOP_SORT_JOB] = { 'j', "JOB" },
};

char top_sort_key(enum top_sort sort) {
        return sort < _TOP_SORT_MAX ? sorts[sort].key : '\0';
}

#define REST_FORMAT  " %-10.10s %7s %7s %7s %7s %9s  %s"
#define REST_COLUMNS (1 + 10 + 4 * 8 + 10 + 2 + 8)

static unsigned name_columns(const struct frame *fr, const struct top_sample *s) {
        unsigned n = NAME_MIN,
                 most = columns(fr) > REST_COLUMNS + NAME_MIN ? columns(fr) - REST_COLUMNS : NAME_MIN;

        for (size_t i = 0; i < s->n_vms; i++)
                if (strlen(s->vms[i].name) > n)
                        n = (unsigned) strlen(s->vms[i].name);
        if (most > NAME_MAX)
                most = NAME_MAX;
        return n < most ? n : most;
}

static void legend(struct frame *fr, unsigned width) {
        char marked[_TOP_SORT_MAX][16];

        for (unsigned i = 0; i < _TOP_SORT_MAX; i++)
                (void) snprintf(marked[i], sizeof(marked[i]), "%s%s", sorts[i].header,
                                i != fr->view->sort ? ""
                                : fr->view->reverse ? "^"
                                                    : "*");
        line(fr, REVERSE, "%-*s" REST_FORMAT, (int) width, marked[TOP_SORT_NAME], "STATE",
             marked[TOP_SORT_MEMORY], marked[TOP_SORT_MAPPED], marked[TOP_SORT_PINNED],
             marked[TOP_SORT_HOLES], marked[TOP_SORT_FAULTS], marked[TOP_SORT_JOB]);
}

static const char *rate_format(double rate, char buf[static SIZE_TEXT_MAX]) {
        if (rate < 0)
                return "-";
        if (rate >= 1e6)
                (void) snprintf(buf, SIZE_TEXT_MAX, "%.1fM", rate / 1e6);
        else if (rate >= 1e4)
                (void) snprintf(buf, SIZE_TEXT_MAX, "%.1fk", rate / 1e3);
        else
                (void) snprintf(buf, SIZE_TEXT_MAX, rate > 0 && rate < 10 ? "%.1f" : "%.0f", rate);
        return buf;
}

/* Never more than there is: 100% is all. */
static const char *percent_format(uint64_t part, uint64_t whole, char buf[static SIZE_TEXT_MAX]) {
        if (whole == 0)
                return "-";
        (void) snprintf(buf, SIZE_TEXT_MAX, "%u%%",
                        part >= whole ? 100 : (unsigned) ((double) part / (double) whole * 100));
        return buf;
}

static void vm_line(struct frame *fr, const struct top_vm *vm, unsigned width) {
        char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX], c[SIZE_TEXT_MAX], d[SIZE_TEXT_MAX], e[SIZE_TEXT_MAX];

        line(fr, vm->holes > 0 ? BOLD : NULL, "%-*.*s" REST_FORMAT, (int) width, (int) width, vm->name,
             vm->state, size_format(vm->bytes, a), percent_format(vm->mapped, vm->built, b),
             size_format(vm->pinned, c), size_format(vm->holes, d), rate_format(vm->fault_rate, e), vm->job);
}

void top_draw(FILE *f, const struct top_sample *s, struct top_view *v) {
        struct frame fr = { .f = f, .view = v };
        unsigned width = name_columns(&fr, s);
        size_t n, room;

        title(&fr, s);
        pools(&fr, s);
        jobs(&fr, s);
        legend(&fr, width);

        room = v->rows > 0 ? (v->rows > fr.lines ? v->rows - fr.lines : 0) : s->n_vms;
        if (room < s->n_vms && room > 0)
                room--; /* for the line that tells of the others */
        n = s->n_vms > room ? s->n_vms - (room > 0 ? room : 1) : 0;
        if (v->first > n)
                v->first = n;
        for (size_t i = v->first; i < s->n_vms && i < v->first + room; i++)
                vm_line(&fr, &s->vms[i], width);
        if (room == 0 && s->n_vms > 0)
                line(&fr, NULL, "(%zu VMs, and no room)", s->n_vms);
        else if (room < s->n_vms)
                line(&fr, NULL, "(%zu to %zu of %zu VMs)", v->first + 1, v->first + room, s->n_vms);
}

static const struct {
        const char *typed;
        unsigned key;
} keys[] = {
        { "q", TOP_KEY_QUIT },      { "Q", TOP_KEY_QUIT },          { "\004", TOP_KEY_QUIT },
        { " ", TOP_KEY_NOW },       { "\f", TOP_KEY_NOW },          { "r", TOP_KEY_REVERSE },
        { "\033[A", TOP_KEY_UP },   { "\033OA", TOP_KEY_UP },       { "\033[B", TOP_KEY_DOWN },
        { "\033OB", TOP_KEY_DOWN }, { "\033[5~", TOP_KEY_PAGE_UP }, { "\033[6~", TOP_KEY_PAGE_DOWN },
        { "\033[H", TOP_KEY_HOME }, { "\033OH", TOP_KEY_HOME },     { "\033[1~", TOP_KEY_HOME },
        { "\033[F", TOP_KEY_END },  { "\033OF", TOP_KEY_END },      { "\033[4~", TOP_KEY_END },
};

/* How long the sequence is that begins with ESC; 0: it is not all there yet. */
static size_t sequence(const char *typed, size_t n) {
        if (n < 2)
                return 0;
        if (typed[1] == 'O')
                return n < 3 ? 0 : 3;
        if (typed[1] != '[')
                return 1;
        for (size_t i = 2; i < n; i++)
                if (typed[i] >= '@' && typed[i] <= '~')
                        return i + 1;
        return n < 16 ? 0 : n; /* whatever it is */
}

size_t top_key_parse(const char *typed, size_t n, unsigned *ret_key) {
        size_t used = n > 0 && typed[0] == '\033' ? sequence(typed, n) : n > 0;

        if (used == 0)
                return 0;
        *ret_key = TOP_KEY_NONE;
        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                if (strlen(keys[i].typed) == used && memcmp(keys[i].typed, typed, used) == 0)
                        *ret_key = keys[i].key;
        for (unsigned i = 0; used == 1 && i < _TOP_SORT_MAX; i++)
                if (sorts[i].key == typed[0])
                        *ret_key = TOP_KEY_SORT + i;
        return used;
}
