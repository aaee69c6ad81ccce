/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_rules: the rules of accumulation and of schedules on what another library did,
 * line by line from stdin (tests/t/4220-loop-accelerate.t writes them):
 *     accumulate K ACROSS EVENT...      bID begin, lID last batch, eID end of a loader,
 *                                       kN a new K, mSYNC,STEP a micro-batch
 *     schedule WITH SPLIT RANKS TOTAL EVENT...    SYNC,SKIPPED,POSITION after a call;
 *                                       TOTAL 0: no one-cycle
 *     rates KIND LR STEPS WARMUP END CYCLES POWER TIMESCALE RATE...
 * Prints the lines that it does not agree with, and how many it has read.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/accumulate.h"
#include "optim/schedule.h"

/* The loaders of the other library, whose innermost one counts there. */
struct nested {
    int in[16], count;
    bool at_end[16];
};

static bool accumulate_line(char *words)
{
    struct accumulate a = { 0 };
    struct nested l = { 0 };
    int k, across, used, sync;
    long long step;

    if (sscanf(words, "%d %d%n", &k, &across, &used) != 2)
        return false;
    a.rule = (accel_accumulation_t){ .every = k, .across_epochs = across };
    for (char *w = strtok(words + used, " \n"); w; w = strtok(NULL, " \n")) {
        const int n = atoi(w + 1);

        if (w[0] == 'b')
            l.in[l.count++] = n, l.at_end[n] = false;
        else if (w[0] == 'l')
            l.at_end[n] = true;
        else if (w[0] == 'e')
            l.count--;
        else if (w[0] == 'k')
            a.rule.every = n;
        else if (sscanf(w, "m%d,%lld", &sync, &step) == 2) {
            accumulate_next(&a, l.count > 0 && l.at_end[l.in[l.count - 1]]);
            if (accumulate_syncs(&a) != sync || a.step != step)
                return false;
        } else {
            return false;
        }
    }
    return true;
}

static bool schedule_line(char *words)
{
    int with, split, ranks, used, sync, skipped;
    long long total, want;
    accel_schedule_t set = { 0 };
    struct schedule_advance rule;
    int64_t p = 0;

    if (sscanf(words, "%d %d %d %lld%n", &with, &split, &ranks, &total, &used) != 4)
        return false;
    rule = (struct schedule_advance){ with, split, ranks };
    set.kind = total > 0 ? ACCEL_SCHEDULE_ONE_CYCLE : ACCEL_SCHEDULE_LINEAR;
    set.steps = total;
    for (char *w = strtok(words + used, " \n"); w; w = strtok(NULL, " \n")) {
        if (sscanf(w, "%d,%d,%lld", &sync, &skipped, &want) != 3)
            return false;
        p = schedule_advance(&rule, &(struct schedule_event){ sync, skipped }, &set, p);
        if (p != want)
            return false;
    }
    return true;
}

static bool rates_line(char *words)
{
    int kind, used;
    long long steps, warmup;
    double lr;
    accel_schedule_t s = { 0 };
    int64_t p = 0;

    if (sscanf(words, "%d %lf %lld %lld %lf %lf %lf %lf%n", &kind, &lr, &steps, &warmup,
               &s.end, &s.cycles, &s.power, &s.timescale, &used) != 8)
        return false;
    s.kind = (accel_schedule_kind_t)kind;
    s.steps = steps;
    s.warmup = warmup;
    if (schedule_check(&s, NULL) != ACCEL_OK)
        return false;
    s = schedule_defaults(s);
    for (char *w = strtok(words + used, " \n"); w; w = strtok(NULL, " \n"), p++) {
        const double want = strtod(w, NULL), got = schedule_rate(&s, lr, p);

        /* the end of a cosine is a difference of nearly equal numbers */
        if (!(fabs(got - want) <= 1e-7 * want + 1e-15 * lr))
            return false;
    }
    return true;
}

int main(void)
{
    static char line[1 << 16], copy[1 << 16];
    int lines = 0, wrong = 0;

    while (fgets(line, sizeof(line), stdin)) {
        bool good = false;
        char *words = strchr(strcpy(copy, line), ' ');

        lines++;
        if (words && !strncmp(line, "accumulate ", 11))
            good = accumulate_line(words);
        else if (words && !strncmp(line, "schedule ", 9))
            good = schedule_line(words);
        else if (words && !strncmp(line, "rates ", 6))
            good = rates_line(words);
        if (!good && wrong++ < 5)
            fputs(line, stdout);
    }
    printf("%d of %d lines agree\n", lines - wrong, lines);
    return wrong != 0 || lines == 0;
}
