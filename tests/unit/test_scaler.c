/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss scale beside a plain statement of torch's rule: 200 random sequences of
 * overflows with rules of all kinds, settings out of range, and the text of checkpoints.
 * With an argument it is a helper of the comparison with torch itself: it reads "init
 * growth backoff interval" and a line of 0 and 1, and prints the scale and the tracker
 * after each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "training/loss_scale.h"
#include "precision/scaler.h"
#include "handle/run.h"
#include "shard/shard_impl.h"
#include "tests/tap.h"

/* ---- torch's rule (_amp_update_scale_) ------------------------------------------- */

struct torch_scaler {
    float scale;
    int tracker;
};

static void torch_update(struct torch_scaler *t, const accel_scaler_t *r,
                         bool found_inf)
{
    if (found_inf) {
        t->scale = (float)((double)t->scale * r->backoff_factor);
        t->tracker = 0;
    } else if (t->tracker + 1 == r->growth_interval) {
        float grown = (float)((double)t->scale * r->growth_factor);

        if (isfinite(grown))
            t->scale = grown;
        t->tracker = 0;
    } else {
        t->tracker++;
    }
}

static uint32_t drawn = 1;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525u + 1013904223u;
    return (drawn >> 8) % below;
}

static accel_scaler_t random_rule(void)
{
    static const double growth[] = { 0, 1.5, 2, 10, 1e30 }, backoff[] = { 0, 0.1, 0.9 };
    static const double init[] = { 0, 1, 3.7, 16777216, 0x1p100 };

    return (accel_scaler_t){ .init_scale = init[draw(5)],
                             .growth_factor = growth[draw(5)],
                             .backoff_factor = backoff[draw(3)],
                             .growth_interval = 1 + draw(40) };
}

static void test_sequences(void)
{
    int wrong = 0, steps = 0;

    for (int k = 0; k < 200; k++) {
        accel_scaler_t rule = random_rule();
        uint32_t rare = 1 + draw(60);
        struct torch_scaler t;
        struct scaler s;

        if (scaler_begin(&s, &rule, NULL)) {
            wrong++;
            continue;
        }
        t = (struct torch_scaler){ s.scale, 0 };
        for (int i = 0; i < 300; i++, steps++) {
            bool overflow = draw(rare) == 0;

            torch_update(&t, &s.rule, overflow);
            scaler_update(&s, overflow);
            wrong += memcmp(&t.scale, &s.scale, sizeof(t.scale)) != 0 ||
                     t.tracker != s.clean;
        }
    }
    tap_is_int(wrong, 0, "%d updates in 200 sequences as torch's", steps);
}

static void test_defaults(void)
{
    struct scaler s;

    tap_ok(!scaler_begin(&s, &(accel_scaler_t){ 0 }, NULL) && s.scale == 65536 &&
               s.rule.growth_factor == 2 && s.rule.backoff_factor == 0.5 &&
               s.rule.growth_interval == 2000 && s.clean == 0,
           "the defaults of GradScaler");
    for (int i = 0; i < 1999; i++)
        scaler_update(&s, false);
    tap_ok(s.scale == 65536 && s.clean == 1999, "1999 steps change nothing");
    scaler_update(&s, false);
    tap_ok(s.scale == 131072 && s.clean == 0, "the 2000th doubles the scale");
    scaler_update(&s, false);
    scaler_update(&s, true);
    tap_ok(s.scale == 65536 && s.clean == 0, "an overflow halves it");
    for (int i = 0; i < 128; i++)
        scaler_update(&s, true);
    tap_ok(s.scale == 0x1p-112f && !scaler_is_spent(&s), "128 more are still possible");
    scaler_update(&s, true);
    tap_ok(scaler_is_spent(&s), "then it is spent");
}

static void test_refused(void)
{
    static const accel_scaler_t rules[] = {
        { .init_scale = -1 },      { .init_scale = NAN },
        { .init_scale = 1e300 },   { .growth_factor = 1 },
        { .growth_factor = NAN },  { .growth_factor = INFINITY },
        { .backoff_factor = 1 },   { .backoff_factor = -0.5 },
        { .backoff_factor = NAN }, { .growth_interval = -1 },
    };
    int wrong = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rules); i++) {
        accel_error_t err = { 0 };
        struct scaler s;

        wrong += scaler_begin(&s, &rules[i], &err) != ACCEL_EINVAL ||
                 !strstr(err.text, "loss");
    }
    tap_is_int(wrong, 0, "settings out of range are refused");
}

static void test_text(void)
{
    static const char *const damaged[] = { "",      "65536",    "65536 -1", "nan 3",
                                           "inf 3", "-2 3",     "0 3",      "65536 3 ",
                                           "x 3",   "65536 3x", "65536  ",  "1e-40 3" };
    struct scaler s, back;
    char text[SCALER_TEXT];
    int wrong = 0;

    scaler_begin(&s, &(accel_scaler_t){ .backoff_factor = 0.3 }, NULL);
    back = s;
    for (int i = 0; i < 100; i++) {
        scaler_update(&s, i % 7 == 0);
        scaler_encode(&s, text);
        wrong += scaler_decode(&back, text, "here", NULL) != ACCEL_OK ||
                 memcmp(&back.scale, &s.scale, sizeof(s.scale)) != 0 ||
                 back.clean != s.clean;
    }
    tap_is_int(wrong, 0, "as text and back to the bit");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(damaged); i++) {
        accel_error_t err = { 0 };

        tap_ok(scaler_decode(&back, damaged[i], "here", &err) == ACCEL_ECORRUPT &&
                   strstr(err.text, "loss scale") && back.scale == s.scale,
               "refused: '%s'", damaged[i]);
    }
    s.rule.growth_interval = 5;
    s.clean = 50;
    scaler_update(&s, false);
    tap_is_int(s.clean, 0, "a shorter interval takes effect after a resume");
}

/* ---- the helper ------------------------------------------------------------------ */

static int play(void)
{
    accel_scaler_t r = { 0 };
    long long interval;
    struct scaler s;
    int c;

    if (scanf("%lf %lf %lf %lld ", &r.init_scale, &r.growth_factor, &r.backoff_factor,
              &interval) != 4)
        return 1;
    r.growth_interval = interval;
    if (scaler_begin(&s, &r, NULL))
        return 1;
    while ((c = getchar()) == '0' || c == '1') {
        scaler_update(&s, c == '1');
        printf("%a %lld\n", (double)s.scale, (long long)s.clean);
    }
    return 0;
}

/* ---- the warning of a small scale ------------------------------------------------- */

static char said[512];

static void note(void *user, accel_log_level_t level, const char *line)
{
    const size_t n = strlen(said);

    (void)user;
    snprintf(said + n, sizeof(said) - n, "%s%s|", level == ACCEL_LOG_WARN ? "" : "? ",
             line);
}

/* Once in a run, by rank 0, at the first scale below 1: after that step's overflow. */
static void test_warning(void)
{
    static const struct {
        float scale;
        const char *overflows; /* a letter a step: o, it overflows */
        int step, rank;
        const char *says;
    } rows[] = {
        { 4, "o", 1, 0, "" },           { 2, "o", 1, 0, "" },
        { 1, "---", 1, 0, "" },         { 1, "o", 1, 0, "1 0.5" },
        { 1.5f, "o", 1, 0, "1 0.75" },  { 4, "o-o--o-o", 1, 0, "6 0.5" },
        { 8, "oooo", 41, 0, "44 0.5" }, { 0.25f, "--", 7, 0, "7 0.25" },
        { 1, "ooo", 1, 1, "" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        static struct shard none;
        static accel_t run;
        char want[512] = "";
        int at, scale;

        memset(&run, 0, sizeof(run));
        none.reducer.loss_scale = 1;
        run.shard = &none;
        run.log = (struct accel_log){ .fn = note, .level = ACCEL_LOG_INFO };
        run.boot.rank = rows[i].rank;
        run.scaling.on = true;
        run.scaling.scaler = (struct scaler){ .rule = { .growth_factor = 2,
                                                        .backoff_factor = 0.5,
                                                        .growth_interval = 1000 },
                                              .scale = rows[i].scale };
        said[0] = '\0';
        for (const char *o = rows[i].overflows; *o; o++) {
            run.progress.step = rows[i].step - 1 + (o - rows[i].overflows);
            loss_scale_found(&run, *o == 'o');
            loss_scale_end_step(&run);
        }
        if (sscanf(rows[i].says, "%d %n", &at, &scale) == 1)
            snprintf(want, sizeof(want),
                     "step %d: the loss scale has fallen to %s: gradients overflow "
                     "float16 even unscaled; lower the learning rate, or use bf16|",
                     at, rows[i].says + scale);
        tap_is_str(said, want, "rank %d from %g: %s", rows[i].rank,
                   (double)rows[i].scale, rows[i].overflows);
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return play();
    test_sequences();
    test_defaults();
    test_refused();
    test_text();
    test_warning();
    return tap_done();
}
