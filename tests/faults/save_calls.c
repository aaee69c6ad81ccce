/* SPDX-License-Identifier: Apache-2.0
 *
 * save_calls [EVERY [FIRST [MODE]]]: whole runs, which save at once, in the background,
 * and on their nodes first, from where a thread copies; one of the calls by which a rank
 * changes what is below the checkpoints' directory or on its node fails, this once or
 * from then on (all of that disk), or ends the process, or is the moment at which a
 * later life of the job begins. Every EVERY-th call is tried (997), from call FIRST on;
 * make check-saves tries all. MODE 0 to 7: one of the ways alone; in the last four each
 * step is saved once more by accel_save, and kills are tried. A failed
 * save stops no training, and a run that must stop says why and ends with 74. Whatever
 * happens, all checkpoints are whole, and none that was reported as saved is lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/saves_world.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/fork_world.h"

/* of the calls, the one that the suite tries */
enum { SUITE = 997 };
enum { ROWS = 20, STEPS = 4, LATER_STEPS = 8, KEEP = 2 };

extern char **environ;

enum how { FAIL, SHORT, KILL, TAKE_OVER };

static const struct kind {
    const char *name;
    enum how how;
    int error;
    /* all calls from that one on; the file system has no locks */
    bool for_good, lockless;
    /* the later life dies before it saves */
    bool dies;
} kinds[] = {
    { "EIO", FAIL, EIO, false, false, false },
    { "ENOSPC", FAIL, ENOSPC, false, false, false },
    { "EDQUOT", FAIL, EDQUOT, false, false, false },
    { "EINTR", FAIL, EINTR, false, false, false },
    { "EXDEV", FAIL, EXDEV, false, false, false },
    { "EROFS", FAIL, EROFS, false, false, false },
    { "a short write", SHORT, 0, false, false, false },
    { "kill", KILL, 0, false, false, false },
    { "EIO from there on", FAIL, EIO, true, false, false },
    { "ENOSPC from there on", FAIL, ENOSPC, true, false, false },
    { "EROFS from there on", FAIL, EROFS, true, false, false },
    { "a later life", TAKE_OVER, 0, false, false, false },
    { "a later life, without locks", TAKE_OVER, 0, false, true, false },
    { "a later life that dies, without locks", TAKE_OVER, 0, false, true, true },
};

/* How runs save. */
static const struct mode {
    const char *name;
    bool background, local, again;
} modes[] = {
    { "at once", false, false, false },
    { "in the background", true, false, false },
    { "on the nodes", false, true, false },
    { "on the nodes, in the background", true, true, false },
    { "again, at once", false, false, true },
    { "again, in the background", true, false, true },
    { "again, on the nodes", false, true, true },
    { "again, on the nodes, in the background", true, true, true },
};

/* What is tried now, for the ranks. */
static const struct mode *mode;
static const struct kind *kind;
static int at, who;
static struct {
    atomic_int calls;
    atomic_bool met;
    int disk; /* of that call */
    char call[80];
    int later; /* how the later life ended */
    int ranks; /* of the lives */
} * now;

/* ---- time: a later life does not wait for the earlier one to end ------------------ */

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int rc = (int)syscall(SYS_clock_gettime, clock, t);
    const int64_t ns = t->tv_nsec + (int64_t)disk_paused_ms * 1000000;

    t->tv_sec += ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return rc;
}

/* ---- locks, as on a file system that two nodes share and that has none ------------- */

static bool lockless;

int flock(int fd, int how)
{
    if (!lockless)
        return (int)syscall(SYS_flock, fd, how);
    errno = ENOLCK;
    return -1;
}

/* ---- the hook -------------------------------------------------------------------- */

/* Which disk the call changes: 1: the checkpoints' directory, 2: the node's, 0: none of
 * them. */
static int disk_of(const char *name, int fd)
{
    char link[40], path[300];
    ssize_t n;

    if (name[0] != '/') {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, path, sizeof(path) - 1);
        path[n < 0 ? 0 : n] = '\0';
        name = path;
    }
    if (strncmp(name, saves_root, strlen(saves_root)) == 0)
        return 1;
    return strncmp(name, saves_dir, strlen(saves_dir)) == 0 &&
                   strncmp(name + strlen(saves_dir), "/node", 5) == 0
               ? 2
               : 0;
}

static void take_over(void)
{
    char how[] = { (char)('0' + (mode - modes)), '\0' };
    char ranks[] = { (char)('0' + now->ranks), '\0' };
    char *const argv[] = { (char *)"save_calls",
                           (char *)(kind->dies       ? "later-lockless-dies"
                                    : kind->lockless ? "later-lockless"
                                                     : "later"),
                           saves_dir,
                           how,
                           ranks,
                           NULL };
    pid_t pid;
    int status = -1;

    setenv("SLURM_RESTART_COUNT", "1", 1);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0)
        waitpid(pid, &status, 0);
    setenv("SLURM_RESTART_COUNT", "0", 1);
    now->later = status;
}

static int strike(const char *call, const char *name, int fd)
{
    int n, disk;

    /* a failed open to read is another campaign's */
    if (strcmp(call, "open") == 0 || strcmp(call, "openat") == 0)
        return 0;
    disk = disk_of(name, fd);
    if (disk == 0)
        return 0;
    n = atomic_fetch_add(&now->calls, 1) + 1;
    if (n < at || (n > at && (!kind->for_good || disk != now->disk)))
        return 0;
    if (n == at) {
        now->disk = disk;
        snprintf(now->call, sizeof(now->call), "%s(%.40s)", call, name);
        now->met = true;
    }
    if (kind->how == KILL)
        kill(getpid(), SIGKILL);
    if (kind->how == TAKE_OVER)
        take_over();
    if (kind->how == SHORT)
        disk_short = strcmp(call, "pwrite") == 0 || strcmp(call, "write") == 0;
    return kind->how == FAIL ? kind->error : 0;
}

/* Where nothing is made to fail: but no pause is made either. */
static int nothing(const char *call, const char *name, int fd)
{
    (void)call;
    (void)name;
    (void)fd;
    return 0;
}

static void pause_never(int rank)
{
    (void)rank;
    disk_hook = nothing;
}

static void strike_from_now(int rank)
{
    disk_hook = rank == who ? strike : nothing;
}

/* ---- one life, and what it must come to ------------------------------------------- */

static long lives;
static int bad;

static void wrong(int ranks, const char *what, long long number)
{
    if (bad++ < 20)
        tap_diag("%s, %d ranks, %s at call %d of rank %d, %s: %s (%lld); %s: %s",
                 mode->name, ranks, kind->name, at, who, now->call, what, number,
                 saves_said->err.where, saves_said->err.text);
}

static accel_status_t save_again(int rank, accel_t *run, accel_error_t *err)
{
    (void)rank;
    return accel_save(run, err);
}

static struct saves_life life_of(int ranks)
{
    return (struct saves_life){ .ranks = ranks,
                                .steps = STEPS,
                                .rows = ROWS,
                                .background = mode->background,
                                .local = mode->local,
                                .keep = KEEP,
                                .after = mode->again ? save_again : NULL };
}

/* The next life finds what is there and comes to the end. What an earlier one had on the
 * nodes may be newer than `found`. */
static const char *next_life(const struct saves_life *life, int64_t found)
{
    const int64_t saved = saves_said->saved > found ? saves_said->saved : found;
    struct saves_life next = *life;

    next.ready = next.open = NULL;
    lives++;
    if (saves_live(&next, HANG_S) != 0)
        return "the next life ends badly";
    if (!life->local && saves_said->begun != (found < 0 ? 0 : found))
        return "the next life began elsewhere";
    if (saves_said->begun < saved)
        return "a save is lost";
    if (life->local && saves_parts() > 0)
        return "something is left on the nodes";
    if (saves_newest(saves_root, ROWS) != STEPS)
        return "the next life has not saved its end";
    /* the next save removes it; a run that is complete makes none */
    return saves_said->begun < STEPS && saves_leftovers(saves_root)
               ? "something is left behind"
               : NULL;
}

/* rc: how the ranks ended. NULL: as it must be. */
static const char *judge_failure(int rc, int64_t newest)
{
    if (saves_said->failures > 0 && !strstr(saves_said->failure, strerror(kind->error)))
        return "the warning does not say why";
    if (!kind->for_good && rc != 0)
        return "one failure ended the run";
    if (!kind->for_good && kind->error == EINTR && saves_said->failures > 0 &&
        !strstr(saves_said->failure, "HDF5 H5FD_"))
        return "an interruption failed a save";
    if (rc == 0 && newest != STEPS)
        return "the end is not saved";
    if (rc == 0)
        return NULL;
    if (rc != 74)
        return "the run must end with 74";
    return strstr(saves_said->err.text, strerror(kind->error))
               ? NULL
               : "the error does not say why";
}

/* The owner in the manifest of a step below saves_root; "" when there is none. */
static void owner_of(int64_t step, char out[64])
{
    char path[200], line[1200];
    FILE *f;

    out[0] = '\0';
    snprintf(path, sizeof(path), "%s/step_%08lld/MANIFEST", saves_root,
             (long long)step);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        sscanf(line, "owner %63s", out);
    if (f)
        fclose(f);
}

/* A later life has run from its begin to its end in the middle of a call. */
static const char *judge_later(int rc, int64_t newest)
{
    int64_t from = -1;
    char owner[64];
    FILE *f;
    char path[200];

    snprintf(path, sizeof(path), "%s/begun", saves_dir);
    f = fopen(path, "r");
    if (now->later != 0 || !f || fscanf(f, "%lld", (long long *)&from) != 1)
        return "the later life ended badly";
    fclose(f);
    if (newest != (!kind->dies ? LATER_STEPS : from > 0 ? from : -1))
        return "not what the later life found or made";
    for (int64_t step = from + 1; step <= LATER_STEPS; step++) {
        owner_of(step, owner);
        if (owner[0] && strcmp(owner, "7.1") != 0)
            return "the earlier life has committed";
    }
    if (saves_said->saved > from && saves_said->saved > 0)
        return "the earlier life says that it has saved";
    return rc == 69 || (rc == 0 && from == STEPS) ? NULL
                                                  : "the earlier life ends otherwise";
}

/* Does a life that came to its end leave nothing on the nodes? What it could not delete
 * the next one does. */
static bool cleans_up(void)
{
    return kind->how == SHORT || (kind->how == FAIL && !kind->for_good &&
                                  strncmp(now->call, "renameat(.trash", 15) != 0 &&
                                  strncmp(now->call, "unlinkat", 8) != 0);
}

/* What a life has left, that ended with `rc`. */
static const char *judge(const struct saves_life *life, int rc, int64_t newest)
{
    const int left = saves_leftovers(saves_root);
    /* what cannot be deleted stays, for the next life to delete */
    const bool stays =
        kind->how == FAIL && (kind->for_good || !strncmp(now->call, "unlinkat", 8));
    const char *problem = NULL;

    if (newest == -2)
        return "damage";
    if (kind->how != TAKE_OVER && !life->local && newest < saves_said->saved)
        return "a save is lost";
    if (kind->how == TAKE_OVER)
        problem = judge_later(rc, newest);
    else if (kind->how == FAIL)
        problem = judge_failure(rc, newest);
    else if (kind->how == SHORT && (rc != 0 || saves_said->failures > 0))
        problem = "a short write failed a save";
    if (!problem && life->local && cleans_up() && (left || saves_parts()))
        problem = "something is left on the nodes";
    if (!problem && !life->local && kind->how != KILL && !stays && left > 0)
        problem = "something is left behind";
    /* a failure may leave a part and a record, for the next life to remove */
    if (!problem && (kind->how == KILL || rc == 74 || (stays && left > 0) ||
                     (life->local && (left > 0 || saves_parts() > 0))))
        problem = next_life(life, newest);
    return problem;
}

/* False: the life has fewer calls than that. */
static bool one_life(int ranks)
{
    struct saves_life life = life_of(ranks);
    const char *problem;
    int64_t newest;
    int rc;

    life.ready = strike_from_now;
    if (kind->how == TAKE_OVER)
        setenv("SLURM_JOB_ID", "7", 1);
    else
        unsetenv("SLURM_JOB_ID");
    lockless = kind->lockless;
    saves_forget();
    memset((void *)now, 0, sizeof(*now));
    now->ranks = ranks;
    lives++;
    rc = saves_live(&life, HANG_S);
    newest = saves_newest(saves_root, ROWS);
    if (!now->met)
        return false;
    problem = judge(&life, rc, newest);
    if (problem)
        wrong(ranks, problem, problem[0] == 't' ? rc : newest);
    return true;
}

static void campaign(int ranks, int every, int first)
{
    /* the suite has time for some of the staged ones */
    const bool few = every == SUITE && mode->local;

    for (size_t k = 0; k < ACCEL_ARRAY_SIZE(kinds); k++) {
        const long before = lives;
        int step;

        kind = &kinds[k];
        bad = 0;
        if ((few && (ranks == 1 || (int)k % 2 != mode->background)) ||
            (mode->again && kind->how != KILL))
            continue;
        /* a commit is a few calls, and each save has one: some moment is to meet it */
        step = kind->dies ? (every + 11) / 12 : every;
        for (who = few ? (int)k / 2 % ranks : 0; who < ranks; who += few ? ranks : 1)
            for (at = 1 + (first + (int)k * 7 + who * 3) % step; one_life(ranks);
                 at += step)
                ;
        tap_is_int(bad, 0, "%s, %d ranks: %s (%ld lives)", mode->name, ranks,
                   kind->name, lives - before);
    }
}

static bool dies;

static void hurry(int rank)
{
    char path[200];
    FILE *f;

    disk_hook = NULL;
    snprintf(path, sizeof(path), "%s/begun", saves_dir);
    f = rank == 0 ? fopen(path, "w") : NULL;
    if (rank == 0 &&
        (!f || fprintf(f, "%lld\n", (long long)saves_said->begun) < 0 || fclose(f)))
        abort();
    if (dies)
        _exit(0);
}

/* It saves as the earlier one does, but at no time at once. */
static int later_life(const char *dir, int how, int ranks)
{
    struct saves_life life;
    int rc;

    mode = &modes[how | 1];
    life = life_of(ranks);
    saves_use(dir);
    life.steps = LATER_STEPS;
    life.open = pause_never;
    life.ready = hurry;
    rc = saves_live(&life, HANG_S);
    if (rc)
        fprintf(stderr, "# the later life: %s: %s\n", saves_said->err.where,
                saves_said->err.text);
    return rc;
}

int main(int argc, char **argv)
{
    const int every = argc > 1 ? atoi(argv[1]) : SUITE;
    const int first = argc > 2 ? atoi(argv[2]) : 0;
    const int only = argc > 3 ? atoi(argv[3]) : -1;

    if (argc > 4 && strncmp(argv[1], "later", 5) == 0) {
        lockless = strcmp(argv[1], "later") != 0;
        dies = strstr(argv[1], "dies") != NULL;
        return later_life(argv[2], argv[3][0] - '0', argv[4][0] - '0');
    }
    if (every < 1 || first < 0)
        return 64;
    if (!saves_new())
        tap_skip_all("no directory for temporary files");
    now = fork_shared(sizeof(*now));
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int m = 0; m < (int)ACCEL_ARRAY_SIZE(modes); m++) {
            mode = &modes[m];
            if (only < 0 || only == m)
                campaign(ranks, every, first);
        }
    saves_end();
    return tap_done();
}
