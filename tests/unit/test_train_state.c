/* SPDX-License-Identifier: Apache-2.0
 *
 * state/: the trainer state in a checkpoint survives a round trip, names what changed
 * between two starts, and refuses text that is not one. The identity of a run tells
 * models apart that differ in one name or shape, and does not depend on the order of
 * units.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/state.h"
#include "tests/tap.h"
#include "handle/run.h"

static char lines[2048];

static void keep(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%s\n", line);
}

static accel_t sample_run(void)
{
    accel_t run = { .progress.step = 120,
                    .progress.cursor = 7680,
                    .log = { keep, NULL, ACCEL_LOG_INFO } };

    run.boot.size = 2;
    run.job = (accel_job_t){
        .steps = 1000, .warmup = 50, .batch = 32, .accumulate = 1, .seed = 9
    };
    run.optim[run.optims++] = (struct accel_optim){
        .settings = { .lr = 1e-3f, .weight_decay = 0.1f }, .scheduled = true, .clip = 1
    };
    return run;
}

static void test_round_trip(void)
{
    accel_t from = sample_run(), to = sample_run();
    accel_error_t err = { 0 };
    char *text = NULL;
    size_t bytes = 0;

    to.progress.step = to.progress.cursor = 0;
    tap_ok(!state_identity(&from, &err) && !state_identity(&to, &err), "two runs");
    lines[0] = '\0';
    tap_is_int(state_encode(&from, &text, &bytes, &err), ACCEL_OK, "encoded");
    tap_is_int(state_decode(&to, text, &err), ACCEL_OK, "decoded");
    tap_is_int(to.progress.step, 120, "step");
    tap_is_int(to.progress.cursor, 7680, "sample cursor");
    tap_is_str(lines, "", "nothing differs, nothing is said");

    to.progress.step = 0;
    tap_ok(state_decode(&to, "accel_trainer=1\nsteps=10\nstep=7\ncursor=5\n", &err) ==
                   ACCEL_OK &&
               to.progress.step == 7 && to.progress.cursor == 5,
           "a key is not taken for one that begins with it, nor is an old one lost");
    tap_ok(strstr(text, "\nloader.=taken=7680\n") && !strstr(text, "cursor="),
           "new texts have the cursor among the loaders");
    lines[0] = '\0';
    to.optim[0].settings.lr = 5e-4f;
    to.boot.size = 3;
    tap_ok(!state_identity(&to, &err), "and another one");
    tap_is_int(state_decode(&to, text, &err), ACCEL_OK, "other settings are fine");
    tap_ok(strstr(lines, "lr") && strstr(lines, "world_size"), "and are listed");
    tap_diag("%s", lines);
    tap_ok(!strstr(lines, "with batch") && !strstr(lines, "clip"),
           "what agrees is not");
    tap_ok(strstr(lines, "global batch of 96 samples (the checkpoint had 64)"),
           "what the number of ranks changes is");
    state_identity_free(&from);
    state_identity_free(&to);
    free(text);
}

/* Settings that only one side has; lines of loaders are none. */
static void test_one_sided(void)
{
    accel_t with = sample_run(), without = sample_run();
    accel_error_t err = { 0 };
    char *text = NULL, more[4096];
    size_t bytes = 0;

    with.averaging.local.every = 4;
    tap_ok(!state_identity(&with, &err) && !state_identity(&without, &err) &&
               !state_encode(&with, &text, &bytes, &err),
           "a run with local SGD, and one without");
    snprintf(more, sizeof(more), "%sloader.train=1 2 3\nmoments=8bit\n", text);
    free(text);
    lines[0] = '\0';
    tap_is_int(state_decode(&without, more, &err), ACCEL_OK, "the second takes it up");
    tap_ok(strstr(lines, "resuming without local_sgd (the checkpoint had 4)\n"),
           "and says what it lacks: %s", lines);
    tap_ok(strchr(lines, '\n') == strrchr(lines, '\n'), "that alone");
    tap_ok(!state_encode(&without, &text, &bytes, &err), "the other way round");
    lines[0] = '\0';
    tap_is_int(state_decode(&with, text, &err), ACCEL_OK, "is fine, too");
    tap_ok(strstr(lines, "resuming with local_sgd = 4 (the checkpoint had none)\n"),
           "and says what is new: %s", lines);
    tap_ok(strchr(lines, '\n') == strrchr(lines, '\n'), "that alone");
    with.boot.rank = 1;
    lines[0] = '\0';
    tap_ok(!state_decode(&with, text, &err) && !lines[0], "rank 0 speaks for all");
    state_identity_free(&with);
    state_identity_free(&without);
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
        { "no step, but steps", "accel_trainer=1\ncursor=5\nsteps=10\n",
          ACCEL_ECORRUPT },
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

        tap_is_int(state_decode(&run, cases[i].text, &err), cases[i].want,
                   "%s is refused", cases[i].what);
        tap_ok(run.progress.step == 120 && run.progress.cursor == 7680 && err.text[0] &&
                   err.hint[0],
               "%s: nothing is changed; %s", cases[i].what, err.text);
    }
}

/* ---- identity -------------------------------------------------------------------- */

struct parameter {
    const char *name;
    int ndim;
    int64_t dim[4];
};

/* A model of at most four parameters in two units, the first `first` of them in unit
 * 0. */
static void identity_of(const struct parameter *list, int first, const char *name,
                        uint64_t seed, char out[512])
{
    accel_t run = { .job = { .seed = seed } };
    accel_tensor_t tensor[4] = { { 0 } }, *all[4];
    struct unit unit[2] = { { .param = all }, { .param = all + first } };
    accel_error_t err = { 0 };
    int n = 0;

    for (; n < 4 && list[n].name; n++) {
        tensor[n] = (accel_tensor_t){ .name = list[n].name, .ndim = list[n].ndim };
        tensor[n].elems = 1;
        /* What lies behind the dimensions says nothing; it is 1 as often as 0. */
        for (int d = 0; d < TENSOR_MAX_DIMS; d++)
            tensor[n].dim[d] = 1;
        for (int d = 0; d < list[n].ndim; d++)
            tensor[n].elems *= tensor[n].dim[d] = list[n].dim[d];
        all[n] = &tensor[n];
    }
    unit[0].param_count = first;
    unit[1].param_count = n - first;
    run.units = (struct units){ unit, 2 };
    snprintf(run.run_name, sizeof(run.run_name), "%s", name);
    if (state_identity(&run, &err))
        tap_ok(false, "an identity: %s", err.text);
    snprintf(out, 512, "%s", run.progress.run_id);
    state_identity_free(&run);
}

static void test_identity(void)
{
    static const struct {
        const char *what;
        struct parameter list[5];
    } models[] = {
        { "a scalar", { { "scale", 0, { 0 } }, { "w", 2, { 3, 4 } } } },
        { "a vector of one", { { "scale", 1, { 1 } }, { "w", 2, { 3, 4 } } } },
        { "a matrix of one", { { "scale", 2, { 1, 1 } }, { "w", 2, { 3, 4 } } } },
        { "another name", { { "scalf", 0, { 0 } }, { "w", 2, { 3, 4 } } } },
        { "the other dimensions", { { "scale", 0, { 0 } }, { "w", 2, { 4, 3 } } } },
        { "one dimension", { { "scale", 0, { 0 } }, { "w", 1, { 12 } } } },
        { "names exchanged", { { "w", 0, { 0 } }, { "scale", 2, { 3, 4 } } } },
        { "another name of the second",
          { { "scale", 0, { 0 } }, { "v", 2, { 3, 4 } } } },
        { "a third parameter",
          { { "scale", 0, { 0 } }, { "w", 2, { 3, 4 } }, { "b", 1, { 1 } } } },
    };
    static const struct parameter transposed[] = { { "w", 2, { 3, 4 } },
                                                   { "scale", 0, { 0 } },
                                                   { NULL, 0, { 0 } } };
    char id[ACCEL_ARRAY_SIZE(models)][512], other[512];
    int alike = 0;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(models); i++) {
        identity_of(models[i].list, 1, "run", 1, id[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(id[i], id[k]) == 0) {
                tap_diag("%s and %s: %s", models[i].what, models[k].what, id[i]);
                alike++;
            }
    }
    tap_is_int(alike, 0, "%zu models, each with its own", ACCEL_ARRAY_SIZE(models));
    tap_ok(strstr(id[0], "run=run model=") == id[0] && strstr(id[0], " params=13 ") &&
               strstr(id[0], " data=0000000000000000 seed=1"),
           "its words: %s", id[0]);
    identity_of(transposed, 1, "run", 1, other);
    tap_is_str(other, id[0], "units in another order: the same");
    identity_of(transposed, 2, "run", 1, other);
    tap_is_str(other, id[0], "all in one unit: the same");
    identity_of(transposed, 1, "walk", 1, other);
    tap_ok(strcmp(other, id[0]) != 0, "another name of the run: %s", other);
    identity_of(transposed, 1, "run", UINT64_MAX, other);
    tap_ok(strstr(other, " seed=18446744073709551615"), "another seed: %s", other);
}

int main(void)
{
    test_round_trip();
    test_one_sided();
    test_refused();
    test_identity();
    return tap_done();
}
