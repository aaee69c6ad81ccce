/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank fails while all save: at any call of the system, or by dying between any two
 * collectives. All ranks get the same error and nothing visible has changed, or all of
 * them have saved. Then ranks that want different things, and directories of other
 * jobs.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/ckpt_internal.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/unit/disk_shim.h"

#define RANKS 3

static char root[256], nodes[256];
/* saves go to the nodes first */
static bool staged;

/* What the ranks came to; shared memory. */
static struct outcome {
    atomic_int ended, reached;
    accel_status_t status;
    accel_error_t err;
} * outcome;

/* ---- one rank's failure ---------------------------------------------------------- */

struct fault {
    int rank;
    int call;       /* its n-th call of the system fails; 0: none */
    int collective; /* it ends before its n-th collective; 0: none */
    int error;
};

static struct fault fault;
static int calls, collectives;
static struct world *world;

static int fail_call(const char *call, const char *name, int fd)
{
    (void)name;
    (void)fd;
    /* Removing never fails here: what a disk refuses to remove is left. */
    if (strcmp(call, "unlinkat") == 0 || ++calls != fault.call)
        return 0;
    atomic_store(&outcome[fault.rank].reached, 1);
    return fault.error;
}

static void maybe_die(void)
{
    if (world->rank == fault.rank && ++collectives == fault.collective) {
        atomic_store(&outcome[fault.rank].reached, 1);
        _exit(1);
    }
}

static accel_status_t d_gather(void *user, const void *mine, size_t bytes, int to,
                               void **all, size_t *sizes, accel_error_t *err)
{
    maybe_die();
    return world->coll.gather(user, mine, bytes, to, all, sizes, err);
}

static accel_status_t d_broadcast(void *user, void *buf, size_t bytes, int from,
                                  accel_error_t *err)
{
    maybe_die();
    return world->coll.broadcast(user, buf, bytes, from, err);
}

static accel_status_t d_max(void *user, int64_t *value, accel_error_t *err)
{
    maybe_die();
    return world->coll.max_i64(user, value, err);
}

/* All ranks in processes of their own, rank 0 as well; back when the last has ended.
 * steps, runs: what each rank saves, and of which run. */
static void save_all(const int64_t steps[RANKS], const char *const runs[RANKS])
{
    int end[2];
    pid_t pid;
    char c;

    memset(outcome, 0, RANKS * sizeof(*outcome));
    if (pipe(end))
        abort();
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        struct world w, dying;

        world_start(&w, RANKS);
        alarm(HANG_S);
        dying = w;
        world = &w;
        dying.coll =
            (accel_ckpt_coll_t){ &w, w.rank, RANKS, d_gather, d_broadcast, d_max };
        if (w.rank == fault.rank && fault.call)
            disk_hook = fail_call;
        outcome[w.rank].status =
            numbers_save(&dying,
                         &(accel_ckpt_save_t){ sizeof(accel_ckpt_save_t), .root = root,
                                               .step = steps[w.rank], .keep = 2,
                                               .run_id = runs[w.rank],
                                               .local = staged ? nodes : NULL },
                         &outcome[w.rank].err);
        atomic_store(&outcome[w.rank].ended, 1);
        _exit(0);
    }
    close(end[1]);
    waitpid(pid, NULL, 0);
    while (read(end[0], &c, 1) > 0) /* every rank holds the other end */
        ;
    close(end[0]);
}

static void save_step(int64_t step)
{
    save_all((const int64_t[RANKS]){ step, step, step },
             (const char *const[RANKS]){ 0 });
}

/* What is wrong with the outcome of a save of `step` after step - 1; NULL: nothing. The
 * ranks that live have the same, and what is on the disk is what they say. */
static const char *problem(int64_t step, int dead)
{
    int first = dead == 0;
    bool failed = outcome[first].status != ACCEL_OK;
    int64_t newest = numbers_load(root);

    for (int r = 0; r < RANKS; r++) {
        if (r == dead)
            continue;
        if (!atomic_load(&outcome[r].ended))
            return "a rank never came back";
        /* Who learns of a dead peer, and when, is the collectives' affair. */
        if (dead >= 0)
            continue;
        if (outcome[r].status != outcome[first].status ||
            strcmp(outcome[r].err.text, outcome[first].err.text) != 0)
            return "the ranks have different errors";
        if (failed && !outcome[r].err.text[0])
            return "an error without a text";
    }
    if (newest != step && newest != step - 1)
        return "no checkpoint loads";
    if (dead < 0 && newest != step - failed)
        return failed ? "an error, but something visible changed" : "it is not there";
    if (dead > 0 && outcome[0].status == ACCEL_OK && newest != step)
        return "rank 0 has saved, but it is not there";
    if (dead != 0 && outcome[0].status != ACCEL_OK && newest == step - 1 &&
        world_names_in(root, "^\\."))
        return "something is left behind";
    return NULL;
}

/* Each save has its fault one place later than the one before, until one has none: the
 * rank fails at a call of the system with `error`; 0: it ends before a collective. */
struct trial {
    int places, bad, refused;
};

static struct trial fail_at_each(int rank, int error, int64_t step,
                                 const char *(*look)(int64_t step, int dead))
{
    struct trial t = { 0 };

    for (int n = 1; n < 200; n++) {
        const char *p;

        fault = (struct fault){ .rank = rank,
                                .call = error ? n : 0,
                                .collective = error ? 0 : n,
                                .error = error };
        save_step(step);
        if (!atomic_load(&outcome[rank].reached))
            break;
        t.places++;
        p = look(step, error ? -1 : rank);
        if (p && t.bad++ < 5)
            tap_diag("%d: %s: %d %s", n, p, (int)outcome[rank == 0].status,
                     outcome[rank == 0].err.text);
        t.refused += outcome[0].status != ACCEL_OK;
        step += staged || numbers_load(root) == step;
    }
    return t;
}

static void test_faults(int rank, int error)
{
    struct trial t;

    world_rmtree(root);
    fault = (struct fault){ .rank = -1 };
    save_step(1);
    t = fail_at_each(rank, error, 2, problem);
    if (error) {
        tap_is_int(t.bad, 0, "rank %d, %s at each of its %d calls: all ranks agree",
                   rank, strerror(error), t.places);
        tap_ok(t.refused >= 5 && t.places > 6, "%d of them fail the save", t.refused);
    } else {
        tap_is_int(t.bad, 0, "rank %d ends before each of its %d collectives", rank,
                   t.places);
        tap_ok(t.places > 5, "there are that many");
    }
}

/* ---- saves to the nodes ---------------------------------------------------------- */

static size_t files_like(const char *format, const char *name)
{
    char pattern[400];
    glob_t found;
    size_t n;

    snprintf(pattern, sizeof(pattern), format, nodes, name);
    if (glob(pattern, 0, NULL, &found))
        return 0;
    n = found.gl_pathc;
    globfree(&found);
    return n;
}

/* What is wrong with the records and the parts; NULL: nothing. */
static const char *staged_problem(int64_t step, int dead)
{
    accel_ckpt_staged_t *list = NULL;
    const char *p = NULL;
    size_t n = 0;

    (void)step;
    if (accel_ckpt_list_staged(root, &list, &n, NULL))
        return "the records cannot be read";
    for (size_t i = 0; i < n; i++) {
        *strrchr(list[i].name, '@') = '\0'; /* the ID is that of the folder */
        if (files_like("%s/accel-*/%s/rank_*.h5", list[i].name + strlen(".local-")) !=
            RANKS)
            p = "a record whose files are not all there";
    }
    free(list);
    if (!p && dead < 0 && files_like("%s/accel-*/%s", "*") != n)
        p = "files without a record";
    return p;
}

static void test_staged(int rank, int error)
{
    struct trial t;

    world_rmtree(root);
    world_rmtree(nodes);
    mkdir(nodes, 0777);
    staged = true;
    t = fail_at_each(rank, error, 1, staged_problem);
    staged = false;
    tap_is_int(t.bad, 0, "to the nodes: rank %d %s each of its %d %s", rank,
               error ? "fails at" : "ends before", t.places,
               error ? "calls" : "collectives");
    tap_ok(t.places > 5, "there are that many");
}

/* ---- ranks that want different things -------------------------------------------- */

static void differs(const char *want, const char *what)
{
    bool same = true;

    for (int r = 0; r < RANKS; r++)
        same = same && outcome[r].status == ACCEL_EMISMATCH &&
               strcmp(outcome[r].err.text, outcome[0].err.text) == 0;
    tap_ok(same && strstr(outcome[0].err.text, want), "%s: %s", what,
           outcome[0].err.text);
    tap_is_int(numbers_load(root), 1, "and nothing visible changed");
    tap_is_int(world_names_in(root, "^\\."), 0, "and nothing is left behind");
}

static void test_different(void)
{
    const char *const none[RANKS] = { 0 };

    world_rmtree(root);
    fault = (struct fault){ .rank = -1 };
    save_step(1);
    save_all((const int64_t[RANKS]){ 7, 8, 7 }, none);
    differs("rank 1 saves step 8, but rank 0 saves step 7", "another step");
    save_all((const int64_t[RANKS]){ 7, 7, 6 }, none);
    differs("rank 2 saves step 6, but rank 0 saves step 7", "an older step");
    save_all((const int64_t[RANKS]){ 7, 7, 7 },
             (const char *const[RANKS]){ "numbers", "numbers", "letters" });
    differs("'letters'", "another run");
}

/* ---- directories of other jobs --------------------------------------------------- */

static void test_jobs(void)
{
    static const struct {
        const char *name;
        bool ours;
    } dirs[] = {
        { ".tmp-step_00000005.12.0", false }, { ".tmp-step_00000005.1.0", true },
        { ".tmp-step_00000006.1.7", true },   { ".tmp-step_00000006.1", true },
        { ".tmp-step_00000006.11", false },   { ".tmp-step_00000006.2.1", false },
        { ".tmp-step_00000007.1x.0", false }, { ".tmp-step_00000008.1.8", false },
        { ".tmp-step_00000008.1.9", false },  { ".tmp-step_00000008.1.10", false },
    };
    accel_error_t err = { 0 };
    int fd[ACCEL_ARRAY_SIZE(dirs)];
    char path[400];

    world_rmtree(root);
    if (mkdir(root, 0777))
        abort();
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(dirs); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, dirs[i].name);
        if (mkdir(path, 0777))
            abort();
        fd[i] = open(path, O_RDONLY | O_DIRECTORY);
        flock(fd[i], LOCK_EX); /* its writer lives, as far as one can see */
    }
    tap_is_int(numbers_save_alone(root, 9, 1, "1.8", &err), ACCEL_OK,
               "job 1 saves beside others (%s)", err.text);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(dirs); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, dirs[i].name);
        tap_ok((access(path, F_OK) != 0) == dirs[i].ours, "%s %s", dirs[i].name,
               dirs[i].ours ? "is of its own earlier life, and goes" : "stays");
        close(fd[i]);
    }
}

/* Processes without Slurm have no order, and wait for each other. */
static void test_processes(void)
{
    accel_error_t err = { 0 };
    char own[400], other[400];
    int fd;

    snprintf(own, sizeof(own), "%s/.tmp-step_00000005.local.70", root);
    snprintf(other, sizeof(other), "%s/.tmp-step_00000005.local.99", root);
    world_rmtree(root);
    if (mkdir(root, 0777) || mkdir(own, 0777) || mkdir(other, 0777))
        abort();
    fd = open(own, O_RDONLY | O_DIRECTORY);
    flock(fd, LOCK_EX);
    tap_is_int(numbers_save_alone(root, 9, 1, "local.70", &err), ACCEL_OK,
               "a process saves (%s)", err.text);
    tap_ok(access(own, F_OK) == 0, "beside another save of its own");
    tap_ok(access(other, F_OK) != 0, "what an earlier one left goes");
    close(fd);
}

/* ---- the same step again --------------------------------------------------------- */

static bool flags_known;

static int fail_again(const char *call, const char *name, int fd)
{
    if (!flags_known && strcmp(call, "renameat2") == 0)
        return EINVAL;
    return fail_call(call, name, fd);
}

/* Whatever fails while step 5 is saved again, one of the two is there. */
static void test_same_step(bool flags)
{
    int bad = 0, failed = 0, n;

    world_rmtree(root);
    numbers_save_alone(root, 5, 1, NULL, NULL);
    flags_known = flags;
    for (n = 1; n < 200; n++) {
        accel_status_t s;

        fault = (struct fault){ .rank = 0, .call = n, .error = EIO };
        calls = 0;
        atomic_store(&outcome[0].reached, 0);
        disk_hook = fail_again;
        s = numbers_save_alone(root, 5, 1, NULL, NULL);
        disk_hook = NULL;
        failed += s != ACCEL_OK;
        if (numbers_load(root) != 5 && bad++ < 5)
            tap_diag("call %d, %s: it is gone", n, accel_status_name(s));
        if (s && world_names_in(root, "^\\.") && bad++ < 5)
            tap_diag("call %d: something is left", n);
        if (!atomic_load(&outcome[0].reached))
            break;
    }
    tap_is_int(bad, 0, "the same step again, %s: each of %d calls fails",
               flags ? "exchanged" : "where renames have no flags", n - 1);
    tap_ok(failed > 10, "%d of them fail the save", failed);
}

int main(void)
{
    outcome = mmap(NULL, RANKS * sizeof(*outcome), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED)
        return 1;
    if (accel_ckpt_can_save(NULL))
        tap_skip_all("built without HDF5");
    world_tmpdir(root, "ckpt-agree");
    world_tmpdir(nodes, "ckpt-agree-nodes");
    test_different();
    for (int r = 0; r < RANKS; r++)
        test_faults(r, r == 1 ? ENOSPC : EIO);
    for (int r = 0; r < RANKS; r++)
        test_faults(r, 0);
    for (int r = 0; r < RANKS; r++)
        test_staged(r, 0);
    for (int r = 0; r < RANKS; r++)
        test_staged(r, EIO);
    test_jobs();
    test_processes();
    test_same_step(true);
    test_same_step(false);
    world_rmtree(root);
    world_rmtree(nodes);
    return tap_done();
}
