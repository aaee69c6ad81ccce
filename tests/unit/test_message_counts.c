/* SPDX-License-Identifier: Apache-2.0
 *
 * How often a line comes, on which rank, and with which numbers: a row is a run of two
 * ranks in a situation where something could be said at every step or save, by every
 * rank. All numbers of a row differ, so that none can stand for another. Wanted are all
 * lines about it, of each rank.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/unit/disk_shim.h"
#include "tests/world/held_run.h"
#include "tests/world/loader_world.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

enum { RANKS = 2, TEXT = 4000 };

static char root[] = "/tmp/accel-counts.XXXXXX";

/* ---- rows ------------------------------------------------------------------------ */

#define LIFE(number) "2026-01-01T00:00:00Z job=41 of=41 restart=" #number " "
#define FAILED(step, times, kept)                                                      \
    "cannot save the checkpoint of step " #step " (failure " #times                    \
    " in a row): step_0000000" #step                                                   \
    ": rank 0: cannot rename TMP: Input/output error; training continues, and " kept   \
    "\n"
#define KEPT(step) "the checkpoint of step " #step " is intact"
#define CURE                                                                           \
    "a preempted run may have to resume from an older checkpoint; ask the site for a " \
    "longer grace time, save more often (accel.checkpoint.every_minutes), or write "   \
    "with more nodes"

struct row {
    const char *what;
    const char *more;    /* of the config, below accel.checkpoint; NULL: nothing */
    const char *env;     /* "A=1;B=2" */
    const char *history; /* the file's text; "/": a directory of that name */
    const char *about;   /* words of the lines that are looked at, by '|' */
    int steps;           /* each is saved */
    unsigned fails;      /* commits of these saves fail: 1 << 3, the third */
    bool loses_lock;     /* to a directory, in the first save */
    bool at_start;       /* the program saves before the first step, too */
    int before;          /* steps of an earlier run */
    accel_status_t st;
    const char *rank0; /* all its lines, or the error; rank 1 says nothing */
};

static const struct row rows[] = {
    { .what = "a history that cannot be written",
      .history = "/",
      .about = "history",
      .steps = 4,
      .rank0 = "OUT/checkpoints/history: cannot write (Is a directory): restarts are "
               "not counted\n" },
    { .what = "a lock that cannot be used",
      .loses_lock = true,
      .about = "second run",
      .steps = 4,
      .rank0 = "OUT/checkpoints/.lock: cannot read the lock (it is not a regular "
               "file): a second run "
               "could write here too; training continues\n" },
    { .what = "a metric that nobody notes",
      .more = "    keep_best: 2\n    metric: accuracy\n",
      .about = "keep_best",
      .steps = 5,
      .rank0 =
          "accel.checkpoint.keep_best keeps no checkpoint: no value of accuracy is "
          "known; evaluate in the job (eval_every), or call accel_note_metric\n" },
    { .what = "saves that fail, and work again",
      .about = "cannot save|is intact",
      .steps = 7,
      .fails = 1 << 3 | 1 << 4 | 1 << 6,
      .rank0 = FAILED(3, 1, KEPT(2)) FAILED(4, 2, KEPT(2)) FAILED(6, 1, KEPT(5)) },
    { .what = "none before the first that fails",
      .about = "cannot save|is intact",
      .steps = 3,
      .fails = 1 << 1,
      .rank0 = FAILED(1, 1, "there is no older checkpoint") },
    { .what = "one of step 0 before it",
      .about = "cannot save|is intact",
      .at_start = true,
      .steps = 2,
      .fails = 1 << 2,
      .rank0 = FAILED(1, 1, KEPT(0)) },
    { .what = "a restart",
      .more = "  preemption:\n    max_restarts: 7\n",
      .env = "SLURM_JOB_ID=44;" ENV_FIRST_JOB "=41;" ENV_RESTART_COUNT "=6",
      .history = LIFE(0) "start step=0\n" LIFE(1) "start step=2\n" LIFE(
          4) "start step=3\n" LIFE(4) "stop step=5 signal=SIGTERM seconds=1.000 "
                                      "reason=preempted\n",
      .about = "restart |resumed",
      .before = 3,
      .steps = 5,
      .rank0 = "restart 3 of at most 7 of job 41 (preempted)\n"
               "resumed from OUT/checkpoints/step_00000003: step 3, 6 samples seen, "
               "written by 2 ranks\n" },
    { .what = "the last restart",
      .more = "  preemption:\n    max_restarts: 2\n",
      .env = "SLURM_JOB_ID=44;" ENV_FIRST_JOB "=41;" ENV_RESTART_COUNT "=6",
      .history = LIFE(0) "start step=0\n" LIFE(1) "start step=2\n",
      .about = "restart ",
      .steps = 1,
      .rank0 =
          "restart 2 of at most 2 of job 41 (the last run ended without a record)\n" },
    { .what = "a restart too many",
      .more = "  preemption:\n    max_restarts: 2\n",
      .env = "SLURM_JOB_ID=44;" ENV_FIRST_JOB "=41;" ENV_RESTART_COUNT "=6",
      .history =
          LIFE(0) "start step=0\n" LIFE(1) "start step=2\n" LIFE(4) "start step=3\n",
      .about = "restart ",
      .steps = 5,
      .st = ACCEL_ESTOPPED,
      .rank0 = "this is restart 3 of job 41, but accel.preemption.max_restarts is 2" },
    { .what = "times that are too short",
      .more = "  preemption:\n    lead_seconds: 60\n",
      .env = "SLURM_JOB_ID=44;" ENV_NOTICE "=low REQUEUE 11 5",
      .history = LIFE(0) "save step=1 seconds=200.500\n",
      .about = "takes",
      .steps = 4,
      .rank0 = "a checkpoint takes 200.5 s, but partition low has GraceTime 11 s: " CURE
               "\na checkpoint takes 200.5 s, but accel.preemption.lead_seconds is 60: "
               "the time limit will end the run before it is saved; use a larger "
               "lead_seconds\n" },
    { .what = "no grace time",
      .env = "SLURM_JOB_ID=44;" ENV_NOTICE "=low CANCEL 0 5",
      .history = LIFE(0) "save step=1 seconds=17.500\n",
      .about = "takes",
      .steps = 4,
      .rank0 = "a checkpoint takes 17.5 s, but partition low has no GraceTime and the "
               "cluster's KillWait is 5 s: " CURE "\n" },
    { .what = "no time at all: no save fits, and it is told once",
      .env = "SLURM_JOB_ID=44;" ENV_NOTICE "=low CANCEL 0 0",
      .history = LIFE(0) "save step=1 seconds=17.500\n",
      .about = "takes",
      .steps = 3,
      .rank0 = "a checkpoint takes 17.5 s, but partition low has no GraceTime and the "
               "cluster's KillWait is 0 s: " CURE "\n" },
    { .what = "as much time as it takes",
      .env = "SLURM_JOB_ID=44;" ENV_NOTICE "=low REQUEUE 11 5",
      .history = LIFE(0) "save step=1 seconds=11.000\n",
      .about = "takes",
      .steps = 4,
      .rank0 = "" },
    { .what = "a run that is complete",
      .about = "complete",
      .before = 3,
      .steps = 3,
      .rank0 = "the run is complete: all 3 steps are done; nothing to do\n" },
};

/* ---- a run ----------------------------------------------------------------------- */

/* Shared by the ranks of a row. */
static struct seen {
    const struct row *row;
    accel_status_t st[RANKS];
    char text[RANKS][TEXT];
} * seen;

static int my_rank;
static int saves; /* that were tried */

static bool is_about(const char *words, const char *line)
{
    for (const char *w = words; *w; w += strcspn(w, "|"), w += *w == '|') {
        char word[64];

        snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, "|"), w);
        if (strstr(line, word))
            return true;
    }
    return false;
}

/* Adds the line, with OUT for the run's folder and TMP for what is to be renamed. */
static void add_line(void *user, accel_log_level_t level, const char *line)
{
    char *to = seen->text[my_rank];
    const size_t n = strlen(out_dir);
    size_t used = strlen(to);

    (void)user, (void)level;
    if (!is_about(seen->row->about, line))
        return;
    for (; *line && used + 8 < TEXT; line++) {
        if (strncmp(line, out_dir, n) == 0) {
            used += (size_t)snprintf(to + used, TEXT - used, "OUT");
            line += n - 1;
        } else if (strncmp(line, ".tmp-", 5) == 0) {
            used += (size_t)snprintf(to + used, TEXT - used, "TMP");
            line += strcspn(line, ":") - 1;
        } else {
            to[used++] = *line;
        }
    }
    strcpy(to + used, "\n");
}

/* Each save ends with such a rename, on rank 0. */
static int at_commit(const char *call, const char *name, int fd)
{
    const struct row *r = seen->row;
    char path[200];

    (void)fd;
    if (strcmp(call, "renameat2") != 0 || strncmp(name, "step_", 5) != 0)
        return 0;
    snprintf(path, sizeof(path), "%s/checkpoints/.lock", out_dir);
    if (r->loses_lock && saves == 0 && (unlink(path) || mkdir(path, 0755)))
        return errno;
    saves++;
    return r->fails >> saves & 1 ? EIO : 0;
}

/* Lines are taken from before the history is read. */
static accel_status_t run_steps(struct number_run *k, int n)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = n, .batch = 1,
                                .out_dir = out_dir };
    accel_status_t st = number_models(k, config);

    if (st)
        return st;
    k->run->log.fn = add_line;
    st = accel_model_add(k->run, "a", k->a, &k->err);
    k->oa = st ? NULL : accel_optim_add(k->run, "oa", &k->a, 1, &sgd, &k->err);
    st = k->oa ? accel_prepare_all(k->run, &loop, &k->err) : k->err.code;
    if (!st && seen->row->at_start)
        st = accel_save(k->run, &k->err);
    while (!st && accel_more(k->run))
        st = step(k);
    return st;
}

static int play(struct boot *b, void *arg)
{
    const struct row *r = seen->row;
    struct number_run k;
    char text[512], *rest = text, *word;

    (void)arg;
    my_rank = b->rank;
    saves = 0;
    disk_hook = at_commit;
    snprintf(text, sizeof(text), "%s", r->env ? r->env : "");
    while ((word = strsep(&rest, ";")))
        if (*word)
            putenv(word);
    seen->st[b->rank] = run_steps(&k, r->steps);
    if (seen->st[b->rank])
        snprintf(seen->text[b->rank], TEXT, "%s", k.err.text);
    accel_close(k.run, NULL);
    return 0;
}

/* An earlier run of the same folder, of which nothing is looked at. */
static int play_before(struct boot *b, void *arg)
{
    struct number_run k;
    accel_status_t st;

    (void)arg;
    my_rank = b->rank;
    st = run_steps(&k, seen->row->before);
    accel_close(k.run, NULL);
    seen->text[b->rank][0] = '\0';
    return st != ACCEL_OK;
}

static void make_files(const struct row *r)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/checkpoints", out_dir);
    mkdir(out_dir, 0755);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/checkpoints/history", out_dir);
    if (r->history && r->history[0] == '/')
        mkdir(path, 0755);
    else if (r->history)
        run_folder_write(path, r->history);
}

static void check_row(size_t i)
{
    const struct row *r = &rows[i];
    FILE *f;

    memset(seen, 0, sizeof(*seen));
    seen->row = r;
    snprintf(config, sizeof(config), "%s/%zu.yaml", root, i);
    snprintf(out_dir, sizeof(out_dir), "%s/%zu", root, i);
    number_config(config, RANKS, 1, "FULL_SHARD", true);
    f = fopen(config, "a");
    fprintf(f, "    every_steps: 1\n    every_minutes: 0\n    async: false\n%s",
            r->more ? r->more : "");
    fclose(f);
    if (r->before)
        tap_is_int(open_world(RANKS, 1, play_before, NULL, HANG_S), 0,
                   "%s: the run before", r->what);
    make_files(r);
    tap_is_int(open_world(RANKS, 1, play, NULL, HANG_S), 0, "%s: a run", r->what);
    for (int rank = 0; rank < RANKS; rank++) {
        tap_is_int(seen->st[rank], r->st, "%s: how rank %d ends", r->what, rank);
        tap_is_str(seen->text[rank], rank ? "" : r->rank0, "%s: what rank %d says",
                   r->what, rank);
    }
}

int main(void)
{
    unsetenv("SLURM_JOB_ID");
    run_folder_new(root);
    seen = fork_shared(sizeof(*seen));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        check_row(i);
    run_folder_remove(root);
    return tap_done();
}
