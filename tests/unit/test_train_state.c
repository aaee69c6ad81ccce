/* SPDX-License-Identifier: Apache-2.0
 *
 * train/: the trainer state in a checkpoint survives a round trip, names what changed
 * between two starts, and refuses text that is not one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "train/run.h"

static char lines[2048];

static void keep(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s\n", line);
}

static accel_t sample_run(void)
{
    accel_t run = { .step = 120,
                    .cursor = 7680,
                    .log = { keep, NULL, ACCEL_LOG_INFO } };

    run.boot.size = 2;
    run.job = (accel_job_t){ .steps = 1000,
                             .warmup = 50,
                             .clip = 1,
                             .batch = 32,
                             .accumulate = 1,
                             .seed = 9,
                             .optimizer = { .lr = 1e-3f, .weight_decay = 0.1f } };
    return run;
}

static void test_round_trip(void)
{
    accel_t from = sample_run(), to = sample_run();
    accel_error_t err = { 0 };
    char *text = NULL;
    size_t bytes = 0;

    to.step = to.cursor = 0;
    lines[0] = '\0';
    tap_is_int(state_encode(&from, &text, &bytes, &err), ACCEL_OK, "encoded");
    tap_is_int(state_decode(&to, text, bytes, &err), ACCEL_OK, "decoded");
    tap_is_int(to.step, 120, "step");
    tap_is_int(to.cursor, 7680, "sample cursor");
    tap_is_str(lines, "", "nothing differs, nothing is said");

    to.job.optimizer.lr = 5e-4f;
    to.boot.size = 3;
    tap_is_int(state_decode(&to, text, bytes, &err), ACCEL_OK,
               "other settings are fine");
    tap_ok(strstr(lines, "lr") && strstr(lines, "world_size"), "and are listed");
    tap_diag("%s", lines);
    tap_ok(!strstr(lines, "batch") && !strstr(lines, "clip"), "what agrees is not");
    free(text);
}

static void test_refused(void)
{
    static const struct {
        const char *what, *text;
        accel_status_t want;
    } cases[] = {
        { "empty", "", ACCEL_ECORRUPT },
        { "no cursor", "accel_trainer=1\nstep=5\n", ACCEL_ECORRUPT },
        { "no step", "accel_trainer=1\ncursor=5\n", ACCEL_ECORRUPT },
        { "step is a word", "accel_trainer=1\nstep=five\ncursor=5\n", ACCEL_ECORRUPT },
        { "negative step", "accel_trainer=1\nstep=-5\ncursor=5\n", ACCEL_ECORRUPT },
        { "step beyond 64 bits",
          "accel_trainer=1\nstep=99999999999999999999\ncursor=5\n", ACCEL_ECORRUPT },
        { "another version", "accel_trainer=2\nstep=5\ncursor=5\n",
          ACCEL_EUNSUPPORTED },
        { "not text", "\001\002\003", ACCEL_ECORRUPT },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        accel_t run = sample_run();
        accel_error_t err = { 0 };

        tap_is_int(state_decode(&run, cases[i].text, strlen(cases[i].text), &err),
                   cases[i].want, "%s is refused", cases[i].what);
        tap_ok(run.step == 120 && run.cursor == 7680 && err.text[0] && err.hint[0],
               "%s: nothing is changed; %s", cases[i].what, err.text);
    }
}

int main(void)
{
    test_round_trip();
    test_refused();
    return tap_done();
}
