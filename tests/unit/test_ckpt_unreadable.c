/* SPDX-License-Identifier: Apache-2.0
 *
 * What moves or deletes checkpoints, and cannot read something now: each tool, with each
 * file that it reads, with one of the errors that may pass after the other. What could not be read stays where
 * it is, whole, and the tools of a person say so; what is damaged is dealt with.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/ckpt_internal.h"
#include "checkpoint/ckpt_tools.h"
#include "tests/tap.h"
#include "tests/unit/call_faults.h"
#include "tests/world/ckpt_world.h"

#define ROOT "/checkpoints"

static char top[256], root[300], node[300];
static char staged[192]; /* the record of step 50 on the node */

/* ---- what there is --------------------------------------------------------------- */

static accel_status_t save(int64_t step, int keep, const char *local)
{
    double value = (double)step;
    const accel_ckpt_box_t box = value_box(&value);
    accel_ckpt_stats_t stats = { 0 };
    const accel_ckpt_save_t s = {
        sizeof(s),       .root = root,         .step = step,
        .owner = "17.0", .run_id = "test run", .sharding = "NO_SHARD",
        .boxes = &box,   .box_count = 1,       .keep = keep,
        .local = local
    };
    const accel_status_t st = accel_ckpt_save(&s, NULL, &stats, NULL);

    if (local)
        snprintf(staged, sizeof(staged), "%s", stats.staged);
    return st;
}

static void shell(const char *what)
{
    char cmd[900];

    snprintf(cmd, sizeof(cmd), "cd '%s' && %s", root, what);
    if (system(cmd) != 0)
        abort();
}

/* Made once. Steps 10 to 40, of which 10 has lost a file; what a save and a deletion
 * left that were killed; 50 on the node, and a part of 51 that no record names. */
static void make_first(void)
{
    if (mkdir(top, 0777))
        abort();
    for (int64_t step = 10; step <= 40; step += 10)
        save(step, 9, NULL);
    save(50, 9, node);
    shell(
        "rm step_00000010/rank*; mkdir .tmp-step_00000005.16.0 .trash-step_00000004.0; "
        "cp step_00000020/MANIFEST .tmp-step_00000005.16.0; "
        "cp step_00000020/MANIFEST .trash-step_00000004.0; "
        "mkdir \"$(echo ../node/accel-*)/step_00000051.17.0\"");
}

/* A copy of that, whose ID is that of the copy. */
static void fresh(void)
{
    char cmd[1600];

    no_fault();
    snprintf(
        cmd, sizeof(cmd),
        "rm -rf '%s' && cp -a '%s.first' '%s' && cd '%s' && read -r id ino <staging "
        "&& echo \"$id $(stat -c %%i .)\" >staging",
        top, top, top, root);
    if (system(cmd) != 0)
        abort();
}

/* Does the checkpoint hold what it held? */
static bool is_whole(const char *name)
{
    return value_in(root, name) == (double)ckpt_step_of_name(name);
}

/* "10 20 .tmp": what is there, steps by their number; what was moved aside with what
 * follows the number. */
static const char *there(void)
{
    return world_output(
        "cd '%s' && ls -dA step_* .tmp-* .trash-* .local-* ../node/*/step_* "
        "2>/dev/null | sed -e 's/^step_0*//; s/-2[0-9TZ]*$//; s/step_.*//; "
        "s|\\.\\./.*|node|; s/-$//' | tr '\\n' ' '",
        root);
}

static bool part_is_there(int step)
{
    char cmd[400];

    snprintf(cmd, sizeof(cmd), "test -e '%s'/accel-*/step_%08d.17.0", node, step);
    return system(cmd) == 0;
}

/* ---- the tools ------------------------------------------------------------------- */

static char said[2000];

static void hear(void *user, const char *name, const char *what, const char *why)
{
    const size_t used = strlen(said);

    (void)user;
    snprintf(said + used, sizeof(said) - used, "%s %s %s\n", name, what, why);
}

static accel_status_t drain(accel_error_t *err)
{
    const accel_ckpt_save_t s = { sizeof(s), .root = root, .owner = "18.0", .keep = 9,
                                  .local = node };
    accel_ckpt_saving_t *g = NULL;
    accel_status_t st = accel_ckpt_drain_begin(&g, staged, &s, NULL, err);

    if (st)
        return st;
    (void)accel_ckpt_save_write(g, NULL);
    st = accel_ckpt_save_publish(g, NULL, NULL, err);
    accel_ckpt_save_free(g);
    return st;
}

enum work { RETAIN, PRUNE, REPAIR, FENCE, SWEEP, DRAIN };

static accel_status_t do_work(enum work work, accel_error_t *err)
{
    const struct ckpt_prune p = {
        .root = root, .keep = 1, .every = -1, .best = -1, .larger = -1, .report = hear
    };

    said[0] = '\0';
    switch (work) {
    case RETAIN:
        return save(60, 2, NULL);
    case PRUNE:
        return ckpt_prune(&p, err);
    case REPAIR:
        return ckpt_repair(&p, err);
    case FENCE:
        return accel_ckpt_fence(root, err);
    case DRAIN:
        return drain(err);
    case SWEEP: /* as a run that begins */
        (void)accel_ckpt_local_remove(root, node, NULL);
    }
    return ACCEL_OK;
}

static const struct tool {
    const char *name;
    enum work work;
    const char *leaves; /* where everything can be read */
} tools[] = {
    { "a save that keeps two", RETAIN, "node node .local 40 60 " },
    { "prune --keep 1", PRUNE, "node node .local .tmp .trash 10 30 40 " },
    { "repair", REPAIR, "node node .local 10.damaged 20 30 40 " },
    { "the next life", FENCE, "node node .local .trash 10 20 30 40 " },
    { "the sweep of a node", SWEEP, "node .local .tmp .trash 10 20 30 40 " },
    { "the copy from a node", DRAIN, "node node .local 10 20 30 40 50 " },
};

/* ---- what each of them reads ----------------------------------------------------- */

static struct {
    char call[16], path[120]; /* behind the top, without numbers that are made up */
} reads[400];
static size_t read_count;

static void note_read(const char *call, const char *path)
{
    const size_t len = strlen(top);
    const char *end = path + len;

    if (strncmp(path, top, len) != 0 || strcmp(call, "fsync") == 0 ||
        strcmp(call, "renameat2") == 0)
        return;
    if (strchr(end, '@') || strncmp(end, "/node/", 6) == 0) /* an ID is in it */
        end = strrchr(end, '/');
    for (size_t i = 0; i < read_count; i++)
        if (strcmp(reads[i].call, call) == 0 && strcmp(reads[i].path, end) == 0)
            return;
    if (read_count == ACCEL_ARRAY_SIZE(reads))
        abort();
    snprintf(reads[read_count].call, sizeof(reads[0].call), "%s", call);
    snprintf(reads[read_count++].path, sizeof(reads[0].path), "%s", end);
}

static const int errors[] = { EACCES, EIO, EMFILE, ENOMEM, ESTALE };

/* Is it a step that the tool leaves where nothing fails? */
static bool stays(const struct tool *t, int step)
{
    char word[16];

    snprintf(word, sizeof(word), " %d ", step);
    return strstr(t->leaves, word) != NULL;
}

/* Does `path` lie in the checkpoint `step`, or is it that? */
static bool is_of(const char *path, int step)
{
    char dir[40];

    snprintf(dir, sizeof(dir), "%s/step_%08d", ROOT, step);
    return strncmp(path, dir, strlen(dir)) == 0;
}

/* What must hold though `path` could not be read. NULL: it does. */
static const char *what_is_wrong(const struct tool *t, const char *path,
                                 accel_status_t st)
{
    const bool rule =
        strstr(path, "/retention") || strcmp(path, ROOT) == 0 || strstr(path, "/.lock");
    const bool person = t->work == PRUNE || t->work == REPAIR;
    int whole = 0;

    for (int step = 20; step <= 60; step += 10) {
        char name[64], left[100];

        ckpt_step_name(name, step);
        if (is_whole(name))
            whole += step == 60 || !is_of(path, step);
        else if (step <= 40 && (stays(t, step) || is_of(path, step) || rule))
            return "one that was whole is gone";
        snprintf(left, sizeof(left), "%s left it cannot be read", name);
        if (t->work == REPAIR && is_of(path, step) && st && !strstr(said, left))
            return "repair says nothing of it";
    }
    if (whole < 2)
        return "less than two that can be read are left";
    if (is_of(path, 10) && strlen(path) > sizeof(ROOT "/step_00000010") &&
        !strstr(there(), " 10 "))
        return "one that is not proven to be damaged is gone";
    if (person && rule && st == ACCEL_OK)
        return "it ends well without a list or a rule";
    if (t->work == DRAIN && st && strncmp(there(), "node node .local", 16) != 0)
        return "the part, or its record, is gone";
    if (t->work == SWEEP &&
        (!part_is_there(50) || (strcmp(path, "/step_00000051.17.0") != 0 &&
                                !strstr(path, "/.local-step_00000050") &&
                                !strstr(path, "/step_00000050") && !part_is_there(51))))
        return "a part is gone that nobody could judge";
    return NULL;
}

static void test_tool(const struct tool *t)
{
    char what[400] = "";
    int wrong = 0;
    accel_error_t err = { 0 };

    fresh();
    read_count = 0;
    call_seen = note_read;
    tap_is_int(do_work(t->work, &err), ACCEL_OK, "%s: all can be read", t->name);
    call_seen = NULL;
    tap_is_str(there(), t->leaves, "it leaves");
    for (size_t i = 0; i < read_count; i++) {
        const int error = errors[i % ACCEL_ARRAY_SIZE(errors)];
        const char *why;
        accel_status_t st;

        fresh();
        fail_next(reads[i].call, reads[i].path, error, 1000);
        st = do_work(t->work, &err);
        no_fault();
        why = what_is_wrong(t, reads[i].path, st);
        if (why && wrong++ == 0)
            snprintf(what, sizeof(what), "%.15s of %.119s: %.40s: %.60s (%.60s)",
                     reads[i].call, reads[i].path, strerror(error), why, there());
    }
    tap_is_str(what, "", "%zu reads fail, one after the other", read_count);
    tap_ok(read_count > 2, "it reads something");
}

/* An empty one goes even so; one that is not empty stays (test_tool). */
static void test_empty(void)
{
    fresh();
    shell("rm .trash-*/MANIFEST");
    fail_next("openat", ".trash-step_00000004.0", EACCES, 1000);
    tap_is_int(do_work(RETAIN, NULL), ACCEL_OK, "a save beside what cannot be opened");
    no_fault();
    tap_is_str(there(), tools[RETAIN].leaves, "an empty directory goes");
}

int main(void)
{
    char first[300];

    world_tmpdir(top, "ckpt-unreadable");
    snprintf(root, sizeof(root), "%s" ROOT, top);
    snprintf(node, sizeof(node), "%s/node", top);
    world_rmtree(top);
    make_first();
    snprintf(first, sizeof(first), "%s.first", top);
    if (rename(top, first))
        abort();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(tools); i++)
        test_tool(&tools[i]);
    test_empty();
    world_rmtree(top);
    world_rmtree(first);
    return tap_done();
}
