/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoints stay after a save: the newest, multiples, the best by a metric,
 * whatever order values and saves come in, and whatever is in the file that has the
 * values.
 */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/load/ckpt_load.h"
#include "checkpoint/ckpt_internal.h"
#include "checkpoint/ckpt_tools.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

static char root[256];
static const char *run_id = "run a";
static accel_ckpt_rule_t rule = { .metric = "loss" };

static accel_status_t save(int64_t step, int keep, int (*may_delete)(void))
{
    double value = (double)step;
    accel_ckpt_box_t box = { .name = "model/w",
                             .dtype = ACCEL_F64,
                             .ndim = 1,
                             .global_shape = { 1 },
                             .shape = { 1 },
                             .data = &value };
    accel_ckpt_save_t s = { sizeof(s),
                            .root = root,
                            .step = step,
                            .owner = "17.0",
                            .run_id = run_id,
                            .sharding = "NO_SHARD",
                            .boxes = &box,
                            .box_count = 1,
                            .keep = keep,
                            .rule = &rule,
                            .may_delete = may_delete };
    accel_error_t err = { 0 };
    accel_status_t st = accel_ckpt_save(&s, NULL, NULL, &err);

    if (st)
        tap_diag("%s", err.text);
    return st;
}

static accel_status_t note(int64_t step, double value)
{
    return accel_ckpt_note_value(root, run_id, "loss", step, value, NULL);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* "1 2 7": the steps that are there, oldest first. */
static const char *steps_there(void)
{
    static char text[512];
    char name[64][32];
    size_t n = 0, used = 0;
    DIR *d = opendir(root);

    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "step_", 5) == 0 && n < 64)
            snprintf(name[n++], sizeof(name[0]), "%.31s", e->d_name);
    if (d)
        closedir(d);
    qsort(name, n, sizeof(name[0]), by_text);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d", i ? " " : "",
                                 atoi(name[i] + 5));
    return text;
}

static void fresh(const char *name)
{
    if (root[0])
        world_rmtree(root);
    world_tmpdir(root, name);
    run_id = "run a";
    rule = (accel_ckpt_rule_t){ .metric = "loss" };
}

/* Appends bytes to the file with the rule and the values. */
static void append(const char *text)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof(path), "%s/retention", root);
    f = fopen(path, "a");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static void test_steps(void)
{
    fresh("steps");
    rule.every = 4;
    for (int64_t step = 1; step <= 10; step++)
        save(step, 2, NULL);
    tap_is_str(steps_there(), "4 8 9 10", "two newest, and multiples of 4");
    rule.every = 0;
    save(11, 2, NULL);
    tap_is_str(steps_there(), "10 11", "without them later, they go");
}

/* Values are those of a loss less `below`: a log-likelihood is below 0. */
static void test_best(double below)
{
    static const double loss[] = { 0, 5, 2, 4, 1, 6, 7, 8, 9 };

    fresh("best");
    rule.best = 2;
    for (int64_t step = 1; step <= 8; step++) {
        note(step, loss[step] - below);
        save(step, 2, NULL);
    }
    tap_is_str(steps_there(), "2 4 7 8",
               "the two smallest from %g on, and the two newest", 1 - below);
    rule.larger = 1;
    save(9, 2, NULL);
    tap_is_str(steps_there(), "7 8 9", "the two largest");
    rule.larger = 0;
    note(7, 0.5 - below);
    save(10, 2, NULL);
    save(11, 2, NULL);
    tap_is_str(
        steps_there(), "7 8 10 11",
        "a value that comes late counts; one without a value is none of the best");
    note(7, 1e9);
    note(8, 1e9);
    rule.best = 1;
    save(12, 2, NULL);
    tap_is_str(steps_there(), "8 11 12",
               "the last value of a step; of equal ones the newest");
    snprintf(rule.metric, sizeof(rule.metric), "other");
    save(13, 2, NULL);
    tap_is_str(steps_there(), "12 13", "another metric has no values");
}

/* The path that accel_ckpt_best gives, behind the root, and the value. */
static const char *best_of(const char *dir, double *value)
{
    static char path[512];
    accel_error_t err = { 0 };

    if (accel_ckpt_best(dir, path, sizeof(path), value, &err))
        return strcpy(path, err.text);
    return strncmp(path, dir, strlen(dir)) ? path : path + strlen(dir);
}

/* With and without a rule that keeps the best. */
static void test_best_by_name(void)
{
    static const double loss[] = { 5, 2, 4, 2, 6 };
    double value = 0;
    char small[8];

    fresh("name");
    save(7, 3, NULL);
    tap_is_str(best_of(root, &value),
               "no checkpoint has a value of loss, so none is the best", "no value");
    tap_is_int(accel_ckpt_best("/none/such", small, sizeof(small), NULL, NULL),
               ACCEL_ENOENT, "no root");
    for (int best = 0; best < 2; best++) {
        fresh("name");
        rule.best = best;
        for (int64_t step = 1; step <= 5; step++) {
            save(step, 2, NULL);
            note(step, loss[step - 1]);
        }
        tap_is_str(best_of(root, &value), "/step_00000004",
                   "the newest of the best that are there, keep_best %d", best);
        tap_ok(value == 2, "and its value: %g", value);
        rule.larger = 1;
        save(6, 2, NULL);
        tap_is_str(best_of(root, NULL), "/step_00000005", "or the largest");
    }
    tap_is_int(accel_ckpt_best(root, small, sizeof(small), NULL, NULL), ACCEL_EINVAL,
               "a buffer that is too small");
    run_id = "run b";
    save(8, 2, NULL);
    tap_is_str(best_of(root, NULL),
               "no checkpoint has a value of loss, so none is the best",
               "those of another run do not count");
}

static int never(void)
{
    return 0;
}

static int budget;
static int some(void)
{
    return budget-- > 0;
}

static void test_when(void)
{
    fresh("when");
    for (int64_t step = 1; step <= 5; step++)
        save(step, 2, never);
    tap_is_str(steps_there(), "1 2 3 4 5", "nothing is deleted while it may not be");
    budget = 2;
    save(6, 2, some);
    tap_is_str(steps_there(), "3 4 5 6", "the oldest first");
    save(7, 2, NULL);
    tap_is_str(steps_there(), "6 7", "the next save goes on");
}

static void test_others(void)
{
    fresh("others");
    rule.best = 1;
    note(3, 1);
    note(5, 0);
    save(3, 2, NULL);
    run_id = "run b";
    note(4, 7);
    note(3, 8);
    for (int64_t step = 4; step <= 7; step++)
        save(step, 2, NULL);
    tap_is_str(steps_there(), "3 4 6 7",
               "another run's checkpoint stays, and its value is not this run's");
}

/* A damaged one is no checkpoint that counts, and goes when enough newer ones are there.
 * One that is newer than the save is not its business. */
static void test_odd_ones(void)
{
    char path[400];

    fresh("odd");
    for (int64_t step = 1; step <= 3; step++)
        save(step, 2, NULL);
    snprintf(path, sizeof(path), "%s/step_00000003/rank_00000-of-00001.h5", root);
    tap_ok(unlink(path) == 0, "the newest is damaged");
    save(4, 2, NULL);
    tap_is_str(steps_there(), "2 3 4", "an older one stays in its place");
    save(5, 2, NULL);
    tap_is_str(steps_there(), "4 5", "until two newer ones are whole");
    fresh("newer");
    save(10, 2, NULL);
    save(5, 2, NULL);
    save(6, 2, NULL);
    tap_is_str(steps_there(), "5 6 10", "a newer one neither counts nor goes");
}

/* Lines that nobody wrote are no values; those around them are. */
static void test_file(void)
{
    static const char *const odd[] = {
        "value",
        "value 0 1 2 loss",
        "value 5bd1bb2fcbf1b6d9 1 -1 loss",
        "rule 0 keep 1 every 1 best 9 metric loss min\n",
        "\n\n \n",
        "value x x x x x x x x x x x x x x x x x x x x\n",
        "half a line",
    };

    fresh("file");
    rule.best = 1;
    note(1, 3);
    append("value ");
    note(2, 1);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(odd); i++)
        append(odd[i]);
    note(3, 2);
    for (int64_t step = 1; step <= 6; step++)
        save(step, 2, NULL);
    tap_is_str(steps_there(), "2 5 6", "values around lines that cannot be read");
    tap_is_int(note(1, NAN), ACCEL_EINVAL, "no number is no value");
    tap_is_int(note(-1, 1), ACCEL_EINVAL, "nor is there a negative step");
    tap_is_int(accel_ckpt_note_value(root, run_id, "a b", 1, 1, NULL), ACCEL_EINVAL,
               "nor a metric with a blank");
    snprintf(rule.metric, sizeof(rule.metric), "a b");
    tap_is_int(save(7, 2, NULL), ACCEL_EINVAL, "nor a rule with one");
}

/* ---- bounds ---------------------------------------------------------------------- */

/* The name of a metric, the step, the rule: the last that is taken, and the next. */
static void test_metric_bounds(void)
{
    static const struct {
        int metric;
        int64_t step, every;
        int best;
        accel_status_t noted, saved;
    } rows[] = {
        { 1, 1, 1, 1, ACCEL_OK, ACCEL_OK },
        { 62, 1, 1, 1, ACCEL_OK, ACCEL_OK },
        { 63, 1, 1, 1, ACCEL_OK, ACCEL_OK },
        { 64, 1, 1, 1, ACCEL_EINVAL, ACCEL_EINVAL },
        { 4, CKPT_STEP_MAX - 1, 0, 0, ACCEL_OK, ACCEL_OK },
        { 4, CKPT_STEP_MAX, 0, 0, ACCEL_OK, ACCEL_OK },
        { 4, CKPT_STEP_MAX + 1, 0, 0, ACCEL_EINVAL, ACCEL_EINVAL },
        { 4, 1, CKPT_STEP_MAX, 0, ACCEL_OK, ACCEL_OK },
        { 4, 1, CKPT_STEP_MAX + 1, 0, ACCEL_OK, ACCEL_EINVAL },
        { 4, 1, -1, 0, ACCEL_OK, ACCEL_EINVAL },
        { 4, 1, 0, INT32_MAX, ACCEL_OK, ACCEL_OK },
        { 4, 1, 0, -1, ACCEL_OK, ACCEL_EINVAL },
    };
    char name[65];
    double value;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        fresh("bounds");
        memset(name, 'm', sizeof(name));
        name[rows[i].metric] = '\0';
        rule.every = rows[i].every;
        rule.best = rows[i].best;
        memcpy(rule.metric, name, sizeof(rule.metric));
        tap_is_int(
            accel_ckpt_note_value(root, run_id, name, rows[i].step, -0.125, NULL),
            rows[i].noted, "%d bytes, step %lld", rows[i].metric,
            (long long)rows[i].step);
        tap_is_int(save(rows[i].step, 2, NULL), rows[i].saved, "every %lld, best %d",
                   (long long)rows[i].every, rows[i].best);
        value = 0;
        if (!rows[i].noted && !rows[i].saved)
            tap_ok(strncmp(best_of(root, &value), "/step_", 6) == 0 && value == -0.125,
                   "and read again: %g", value);
    }
}

static void test_not_a_file(void)
{
    char path[300];

    fresh("link");
    snprintf(path, sizeof(path), "%s/retention", root);
    if (symlink("/etc/hostname", path))
        tap_diag("no link");
    tap_ok(note(1, 1) != ACCEL_OK, "a value is not written through a link");
    for (int64_t step = 1; step <= 4; step++)
        save(step, 2, NULL);
    tap_is_str(steps_there(), "1 2 3 4", "and with an unreadable file all stay");
    world_rmtree(root);
}

/* ---- a run that removes one while the list is made (the linker puts this in front of
 * the look at a checkpoint) -------------------------------------------------------- */

static int64_t being_removed = -1;

void __real_ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name);
void __wrap_ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name);

/* Some of its files are gone when it is looked at, and all of it afterwards. */
void __wrap_ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name)
{
    const bool goes = ckpt_step_of_name(name) == being_removed;
    char path[400];

    snprintf(path, sizeof(path), "%s/%s/MANIFEST", root, name);
    if (goes)
        unlink(path);
    __real_ckpt_identify(id_out, rootfd, name);
    path[strlen(path) - strlen("/MANIFEST")] = '\0';
    if (goes)
        world_rmtree(path);
}

static char said[4096];
static void say(void *user, const char *name, const char *why)
{
    size_t used = strlen(said);

    (void)user;
    snprintf(said + used, sizeof(said) - used, "%d: %s\n", atoi(name + 5), why);
}

static void test_reasons(void)
{
    char none[300];

    fresh("reasons");
    rule.best = 1;
    rule.every = 3;
    note(2, 0.25);
    for (int64_t step = 1; step <= 5; step++)
        save(step, 2, NULL);
    said[0] = '\0';
    tap_is_int(ckpt_why_kept(root, say, NULL, NULL), ACCEL_OK, "a list of reasons");
    tap_is_str(said,
               "5: newest 1 of 2\n4: newest 2 of 2\n3: every 3 steps\n"
               "2: best 1 by loss (0.25)\n",
               "says all of them");
    said[0] = '\0';
    being_removed = 3;
    tap_is_int(ckpt_why_kept(root, say, NULL, NULL), ACCEL_OK, "beside a run at work");
    being_removed = -1;
    tap_is_str(said, "5: newest 1 of 2\n4: newest 2 of 2\n2: best 1 by loss (0.25)\n",
               "what it removes meanwhile is not in the list");
    tap_is_str(steps_there(), "2 4 5", "and gone");
    said[0] = '\0';
    snprintf(none, sizeof(none), "%s/none", root);
    tap_is_int(ckpt_why_kept(none, say, NULL, NULL), ACCEL_OK,
               "no directory, no reasons");
    tap_is_str(said, "", "none");
}

int main(void)
{
    static const double below[] = { 0, 6, 1e6 };

    test_steps();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(below); i++)
        test_best(below[i]);
    test_best_by_name();
    test_when();
    test_others();
    test_odd_ones();
    test_file();
    test_metric_bounds();
    test_reasons();
    test_not_a_file();
    return tap_done();
}
