/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: whole runs against transformers and torch (tests/data/optim), the job's own
 * one to the bit, state as text at every position, and how far a call moves them against
 * Accelerate's rows and a second statement of its rule.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/schedule.h"
#include "tests/tap.h"

#define LR 3e-4

static double fading(void *user, int64_t position)
{
    (void)user;
    return pow(0.95, (double)position);
}

static const struct {
    const char *name;
    accel_schedule_t set;
} cases[] = {
    { "constant", { .kind = ACCEL_SCHEDULE_CONSTANT } },
    { "constant-warmup", { .kind = ACCEL_SCHEDULE_CONSTANT, .warmup = 7 } },
    { "linear", { .kind = ACCEL_SCHEDULE_LINEAR, .steps = 60, .warmup = 10 } },
    { "linear-cold", { .kind = ACCEL_SCHEDULE_LINEAR, .steps = 60 } },
    { "linear-short", { .kind = ACCEL_SCHEDULE_LINEAR, .steps = 10, .warmup = 20 } },
    { "cosine", { .kind = ACCEL_SCHEDULE_COSINE, .steps = 60, .warmup = 10 } },
    { "cosine-waves",
      { .kind = ACCEL_SCHEDULE_COSINE, .steps = 60, .warmup = 10, .cycles = 1.5 } },
    { "cosine-end",
      { .kind = ACCEL_SCHEDULE_COSINE, .steps = 60, .warmup = 10, .end = 0.2 } },
    { "restarts",
      { .kind = ACCEL_SCHEDULE_RESTARTS, .steps = 60, .warmup = 10, .cycles = 3 } },
    { "restarts-one", { .kind = ACCEL_SCHEDULE_RESTARTS, .steps = 60, .warmup = 10 } },
    { "polynomial",
      { .kind = ACCEL_SCHEDULE_POLYNOMIAL,
        .steps = 60,
        .warmup = 10,
        .end = 1e-7 / LR } },
    { "polynomial-2",
      { .kind = ACCEL_SCHEDULE_POLYNOMIAL,
        .steps = 60,
        .warmup = 5,
        .end = 3e-5 / LR,
        .power = 2.5 } },
    { "inverse-sqrt", { .kind = ACCEL_SCHEDULE_INVERSE_SQRT, .warmup = 10 } },
    { "inverse-sqrt-time",
      { .kind = ACCEL_SCHEDULE_INVERSE_SQRT, .warmup = 10, .timescale = 25 } },
    { "inverse-sqrt-cold", { .kind = ACCEL_SCHEDULE_INVERSE_SQRT } },
    { "one-cycle", { .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 60 } },
    { "one-cycle-own",
      { .kind = ACCEL_SCHEDULE_ONE_CYCLE,
        .steps = 60,
        .warmup = 15,
        .div = 10,
        .final_div = 100 } },
    { "one-cycle-short", { .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 7 } },
    { "one-cycle-3", { .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 3 } },
    { "own", { .kind = ACCEL_SCHEDULE_OWN, .own = fading } },
    { "plateau", { .kind = ACCEL_SCHEDULE_PLATEAU } },
    { "plateau-quick",
      { .kind = ACCEL_SCHEDULE_PLATEAU,
        .end = 3e-6 / LR,
        .plateau = { .factor = 0.5,
                     .patience = 2,
                     .threshold = 0.05,
                     .cooldown = 3 } } },
    { "plateau-abs",
      { .kind = ACCEL_SCHEDULE_PLATEAU,
        .plateau = { .factor = 0.7,
                     .patience = -1,
                     .threshold = 0.3,
                     .absolute = 1 } } },
    { "plateau-max",
      { .kind = ACCEL_SCHEDULE_PLATEAU,
        .plateau = { .maximize = 1, .factor = 0.5, .patience = 4, .cooldown = 1 } } },
    { "plateau-max-abs",
      { .kind = ACCEL_SCHEDULE_PLATEAU,
        .plateau = { .maximize = 1,
                     .factor = 0.5,
                     .patience = 4,
                     .threshold = 1,
                     .absolute = 1 } } },
};

/* The metrics of tests/data/optim/make_schedules.py. */
static double metric_of(int i)
{
    return 4.0 / (1 + (i < 12 ? i : 12)) + 0.25 * (i * 7 % 5) +
           (i > 40 ? 0.125 * (i - 40) : 0);
}

/* The rate of the next step, after which the schedule has moved on. */
static double step_once(struct schedule *s)
{
    double rate = -1;

    schedule_now(s, &rate, NULL);
    if (s->set.kind == ACCEL_SCHEDULE_PLATEAU)
        schedule_metric(s, metric_of((int)s->position), NULL);
    s->position++;
    return rate;
}

/* 1e-12 leaves room for another order of the same products. */
static void test_torch(void)
{
    const char *src = getenv("ACCEL_SRC");
    char path[512], name[32];
    FILE *f;
    size_t found = 0;

    snprintf(path, sizeof(path), "%s/tests/data/optim/schedules.txt", src ? src : ".");
    f = fopen(path, "r");
    for (int count; f && fscanf(f, "%31s %d", name, &count) == 2; found++) {
        struct schedule s;
        double worst = 0;

        if (found == ACCEL_ARRAY_SIZE(cases) || strcmp(name, cases[found].name) != 0 ||
            schedule_begin(&s, &cases[found].set, LR, NULL))
            break;
        for (int i = 0; i < count; i++) {
            double want = NAN, got = step_once(&s);

            if (fscanf(f, "%lf", &want) != 1)
                want = NAN;
            worst = fmax(worst, got == want ? 0 : fabs(got - want) / want);
            worst = isnan(want) ? INFINITY : worst;
        }
        tap_ok(worst < 1e-12, "%s: %d rates are torch's to %.2g", name, count, worst);
    }
    tap_is_int((long long)found, (long long)ACCEL_ARRAY_SIZE(cases), "all of them");
    if (f)
        fclose(f);
}

/* How accel_job_t has always had it; steps count from 1. */
static float rate_of_job(float peak, int64_t warmup, int64_t steps, int64_t step)
{
    const double pi = 3.14159265358979323846;
    double lowest = peak * 0.1, progress;

    if (step <= warmup)
        return (float)(peak * ((double)step / (double)warmup));
    if (step >= steps)
        return (float)lowest;
    progress = (double)(step - warmup) / (double)(steps - warmup);
    return (float)(lowest + (peak - lowest) * 0.5 * (1.0 + cos(pi * progress)));
}

static void test_job(void)
{
    static const float peaks[] = { 3e-4f, 1e-3f, 0.1f, 0.5f, 6e-4f, 1.7e-5f };
    int64_t wrong = 0, seen = 0;

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(peaks); k++)
        for (int64_t steps = 1; steps < 130; steps += 1 + steps / 9)
            for (int64_t warmup = 0; warmup < 140; warmup += 1 + warmup / 3) {
                const accel_schedule_t set = schedule_of_job(warmup, steps);

                for (int64_t p = 0; p < steps + 3; p++, seen++)
                    wrong += (float)schedule_rate(&set, peaks[k], p) !=
                             rate_of_job(peaks[k], warmup, steps, p + 1);
            }
    tap_is_int(wrong, 0, "the job's schedule keeps its bits (%lld rates)",
               (long long)seen);
}

/* ---- state ----------------------------------------------------------------------- */

static void test_resume(void)
{
    enum { LONG = 50 };
    bool same = true;

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(cases); k++)
        for (int stop = 0; stop <= LONG; stop++) {
            char text[SCHEDULE_TEXT], after[SCHEDULE_TEXT];
            struct schedule a, b;

            schedule_begin(&a, &cases[k].set, LR / 3, NULL);
            for (int i = 0; i < stop; i++)
                step_once(&a);
            schedule_begin(&b, &cases[k].set, LR / 3, NULL);
            schedule_encode(&a, text);
            same = same && !schedule_decode(&b, text, NULL) && a.last == b.last;
            for (int i = stop; i < LONG; i++)
                same = same && step_once(&a) == step_once(&b);
            schedule_encode(&a, text);
            schedule_encode(&b, after);
            same = same && strcmp(text, after) == 0;
        }
    tap_ok(same, "stopped anywhere and resumed, every schedule goes on to the bit");
}

static void test_text_refused(void)
{
    static const struct {
        const char *what, *text;
    } rows[] = {
        { "another kind",
          "linear position 3 last 0.1 left 0.1 best inf bad 0 resting 0" },
        { "nothing", "" },
        { "an end too early", "plateau position 3 last 0.1 left 0.1 best inf bad 0" },
        { "more than that",
          "plateau position 3 last 0.1 left 0.1 best inf bad 0 resting 0 x" },
        { "a negative position",
          "plateau position -3 last 0.1 left 0.1 best inf bad 0 resting 0" },
        { "a rate that is no number",
          "plateau position 3 last nan left 0.1 best inf bad 0 resting 0" },
        { "an infinite rate",
          "plateau position 3 last 0.1 left inf best inf bad 0 resting 0" },
        { "a best metric that is no number",
          "plateau position 3 last 0.1 left 0.1 best nan bad 0 resting 0" },
        { "a negative count",
          "plateau position 3 last 0.1 left 0.1 best inf bad -1 resting 0" },
    };
    const accel_schedule_t set = { .kind = ACCEL_SCHEDULE_PLATEAU };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        accel_error_t err = { 0 };
        struct schedule s;

        schedule_begin(&s, &set, LR, NULL);
        tap_ok(schedule_decode(&s, rows[i].text, &err) == ACCEL_EMISMATCH &&
                   err.hint[0] && s.position == 0 && s.left == LR,
               "%s is no state: %s", rows[i].what, err.text);
    }
}

/* ---- misuse ---------------------------------------------------------------------- */

static double hollow(void *user, int64_t position)
{
    return position < 2 ? 1 : *(const double *)user;
}

static void test_own(void)
{
    static const double bad[] = { NAN, INFINITY, -0.5 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(bad); i++) {
        double user = bad[i], rate = -1;
        const accel_schedule_t set = { .kind = ACCEL_SCHEDULE_OWN,
                                       .own = hollow,
                                       .user = &user };
        accel_error_t err = { 0 };
        struct schedule s;

        schedule_begin(&s, &set, LR, NULL);
        s.position = 1;
        tap_ok(!schedule_now(&s, &rate, NULL) && rate == LR, "an own factor of 1");
        s.position = 2;
        tap_ok(schedule_now(&s, &rate, &err) == ACCEL_EINVAL && rate == LR &&
                   strstr(err.text, "position 2"),
               "and one of %g: %s", bad[i], err.text);
    }
}

static void test_refused(void)
{
    static const struct {
        const char *what;
        accel_schedule_t set;
    } rows[] = {
        { "an unknown kind", { .kind = (accel_schedule_kind_t)9 } },
        { "a kind below the first", { .kind = (accel_schedule_kind_t)-1 } },
        { "a negative warm-up", { .warmup = -1 } },
        { "negative steps", { .steps = -1 } },
        { "a negative first position", { .first = -1 } },
        { "linear without steps", { .kind = ACCEL_SCHEDULE_LINEAR } },
        { "one cycle without steps", { .kind = ACCEL_SCHEDULE_ONE_CYCLE } },
        { "a rise longer than its cycle",
          { .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 5, .warmup = 6 } },
        { "an end above lr", { .end = 1.5 } },
        { "an end that is no number", { .end = NAN } },
        { "negative cycles", { .cycles = -1 } },
        { "an infinite power", { .power = INFINITY } },
        { "a timescale that is no number", { .timescale = NAN } },
        { "a start above lr", { .div = 0.5 } },
        { "an infinite fall", { .final_div = INFINITY } },
        { "own without a function", { .kind = ACCEL_SCHEDULE_OWN } },
        { "a factor of 1", { .plateau = { .factor = 1 } } },
        { "a factor that is no number", { .plateau = { .factor = NAN } } },
        { "an infinite threshold", { .plateau = { .threshold = INFINITY } } },
        { "a negative cooldown", { .plateau = { .cooldown = -1 } } },
    };
    struct schedule s = { .position = 77 };
    accel_error_t err = { 0 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_ok(schedule_begin(&s, &rows[i].set, LR, &err) == ACCEL_EINVAL &&
                   err.hint[0] && s.position == 77,
               "%s is refused: %s", rows[i].what, err.text);
    for (int i = 0; i < 3; i++)
        tap_is_int(schedule_begin(&s, &cases[0].set,
                                  i == 0   ? -1
                                  : i == 1 ? NAN
                                           : INFINITY,
                                  &err),
                   ACCEL_EINVAL, "an lr that is none: %s", err.text);
    schedule_begin(&s, &cases[2].set, LR, NULL);
    tap_is_int(schedule_metric(&s, 1, &err), ACCEL_EINVAL, "%s", err.text);
}

/* Where torch divides by nothing, or goes up again. */
static void test_corners(void)
{
    const accel_schedule_t one = schedule_defaults((accel_schedule_t){
        .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 1, .warmup = 1 });
    const accel_schedule_t all = schedule_defaults((accel_schedule_t){
        .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 4, .warmup = 4 });
    const accel_schedule_t cycle = schedule_defaults(cases[15].set);
    const accel_schedule_t cosine = schedule_defaults(cases[5].set);
    const accel_schedule_t late =
        schedule_defaults((accel_schedule_t){ .kind = ACCEL_SCHEDULE_LINEAR,
                                              .steps = INT64_MAX / 4,
                                              .warmup = INT64_MAX / 8 });

    tap_ok(schedule_rate(&one, LR, 0) == LR, "one cycle of one step");
    tap_ok(schedule_rate(&all, LR, 3) == LR && schedule_rate(&all, LR, 0) < LR / 20,
           "one that only rises");
    tap_ok(schedule_rate(&cycle, LR, 500) == schedule_rate(&cycle, LR, 59),
           "one cycle stays down");
    tap_ok(schedule_rate(&cosine, LR, 90) == 0, "so does a cosine");
    tap_ok(schedule_rate(&cycle, LR, -5) == schedule_rate(&cycle, LR, 0),
           "nothing is before the beginning");
    tap_is_close(schedule_rate(&late, LR, INT64_MAX / 16), LR / 2, 1e-9,
                 "positions as large as they get");
}

/* ---- Accelerate's rule ----------------------------------------------------------- */

/* Measured with accelerate 1.15.0: the position after each of six calls. */
static void test_accelerate_rows(void)
{
    static const struct {
        struct schedule_advance rule;
        int64_t after[6];
    } rows[] = {
        { { true, false, 1 }, { 1, 2, 3, 4, 5, 6 } },
        { { false, false, 1 }, { 1, 2, 3, 4, 5, 6 } },
        { { true, true, 1 }, { 1, 2, 3, 4, 5, 6 } },
        { { false, true, 1 }, { 1, 2, 3, 4, 5, 6 } },
        { { true, false, 2 }, { 2, 4, 6, 8, 10, 12 } },
        { { false, false, 2 }, { 1, 2, 3, 4, 5, 6 } },
        { { true, true, 2 }, { 1, 2, 3, 4, 5, 6 } },
        { { false, true, 2 }, { 1, 2, 3, 4, 5, 6 } },
        { { true, false, 4 }, { 4, 8, 12, 16, 20, 24 } },
        { { false, false, 4 }, { 1, 2, 3, 4, 5, 6 } },
        { { true, true, 4 }, { 1, 2, 3, 4, 5, 6 } },
        { { false, true, 4 }, { 1, 2, 3, 4, 5, 6 } },
    };
    static const int64_t one_cycle[] = { 4, 8, 10, 10, 10 };
    const struct schedule_event stepped = { .sync = true };
    const accel_schedule_t plain = { 0 };
    const accel_schedule_t ten = { .kind = ACCEL_SCHEDULE_ONE_CYCLE, .steps = 10 };
    int64_t p = 0;
    bool same = true;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        p = 0;
        for (int call = 0; call < 6; call++) {
            p = schedule_advance(&rows[i].rule, &stepped, &plain, p);
            same = same && p == rows[i].after[call];
        }
    }
    tap_ok(same, "positions are Accelerate's for 1, 2 and 4 ranks");
    p = 0;
    same = true;
    for (size_t call = 0; call < ACCEL_ARRAY_SIZE(one_cycle); call++) {
        p = schedule_advance(&rows[8].rule, &stepped, &ten, p);
        same = same && p == one_cycle[call];
    }
    tap_ok(same, "one cycle stops at its steps: 4 8 10 10 10");
}

/* AcceleratedScheduler.step said once more, with torch's counter: it is 1 when the
 * position is 0. */
static int64_t moved(bool with_optimizer, bool split, int ranks, bool sync,
                     bool skipped, int64_t total, int64_t position)
{
    int64_t count = position + 1;
    int inner = with_optimizer ? (sync && !skipped ? (split ? 1 : ranks) : 0) : 1;

    for (int i = 0; i < inner; i++)
        if (!with_optimizer || total < 0 || count <= total)
            count++;
    return count - 1;
}

static void test_rule(void)
{
    int wrong = 0, seen = 0;

    for (int bits = 0; bits < 16; bits++)
        for (int ranks = 1; ranks <= 5; ranks++)
            for (int64_t total = -1; total < 8; total++)
                for (int64_t p = 0; p <= total + 3; p++, seen++) {
                    const bool cycle = total >= 0, with = bits & 1, split = bits & 2;
                    const accel_schedule_t set = {
                        .kind =
                            cycle ? ACCEL_SCHEDULE_ONE_CYCLE : ACCEL_SCHEDULE_LINEAR,
                        .steps = cycle ? total : 3,
                    };

                    wrong +=
                        schedule_advance(
                            &(struct schedule_advance){ with, split, ranks },
                            &(struct schedule_event){ bits & 4, bits & 8 }, &set, p) !=
                        moved(with, split, ranks, bits & 4, bits & 8, total, p);
                }
    tap_is_int(wrong, 0, "and by its rule in %d cases", seen);
}

int main(void)
{
    test_torch();
    test_job();
    test_resume();
    test_text_refused();
    test_own();
    test_refused();
    test_corners();
    test_accelerate_rows();
    test_rule();
    return tap_done();
}
