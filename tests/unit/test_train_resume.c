/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks choose what they go on from: damage that one of them proves takes both back
 * to the older checkpoint, anything else ends both, with the file named, and nothing is
 * written. No trainer runs here; openat fails by --wrap on one rank.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state/state.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "tests/tap.h"
#include "tests/world/ckpt_world.h"
#include "tests/world/fork_world.h"
#include "tests/world/model_run.h"
#include "tests/world/run_folder.h"

#define SHARD0 "step_00000004/rank_00000-of-00002.h5"
#define SHARD1 "step_00000004/rank_00001-of-00002.h5"

static const struct resume_case {
    const char *what, *make; /* make: a command in the root before the start */
    int rank;                /* whose openat of `file` fails with `error` */
    const char *file;
    int error;
    accel_status_t status; /* on every rank */
    int64_t step;          /* that both go on from; -1: none */
    const char *names;     /* there afterwards; times are cut off */
    const char *says;      /* rank `says_rank` tells this */
    int says_rank;
    bool no_save;
} cases[] = {
    { "whole", ":", -1, "", 0, ACCEL_OK, 4, "step_00000002 step_00000004 ", "", 0,
      false },
    { "rank 1 cannot read", ":", 1, SHARD1, EIO, ACCEL_EIO, -1,
      "step_00000002 step_00000004 ", SHARD1, 1, false },
    { "rank 0 cannot read", ":", 0, SHARD1, EMFILE, ACCEL_EIO, -1,
      "step_00000002 step_00000004 ", SHARD1, 0, false },
    { "rank 1 may not read", ":", 1, SHARD0, EACCES, ACCEL_EPERM, -1,
      "step_00000002 step_00000004 ", SHARD0, 1, false },
    { "rank 0 could not list it, and reads it", ":", 0, "step_00000004", EACCES,
      ACCEL_OK, 4, "step_00000002 step_00000004 ", "", 0, false },
    { "rank 1 alone misses a file", ":", 1, SHARD1, ENOENT, ACCEL_EIO, -1,
      "step_00000002 step_00000004 ", "rank 0 can read it", 1, false },
    { "a file is not there", "rm " SHARD1, -1, "", 0, ACCEL_OK, 2,
      "step_00000002 step_00000004.damaged-T ", "", 0, false },
    { "damage that one rank meets", "damage", -1, "", 0, ACCEL_OK, 2,
      "step_00000002 step_00000004.damaged-T ", "", 0, false },
    { "damage, and nothing is saved", "damage", -1, "", 0, ACCEL_OK, 2,
      "step_00000002 step_00000004 ", "", 0, true },
    { "damage, and rank 0 cannot read", "damage", 0, SHARD0, EIO, ACCEL_EIO, -1,
      "step_00000002 step_00000004 ", SHARD0, 0, false },
    { "an older one cannot be read", ":", 0, "step_00000002", EIO, ACCEL_OK, 4,
      "step_00000002 step_00000004 ", "", 0, false },
    { "another format", "sed -i '1s/1$/7/' step_00000004/MANIFEST", -1, "", 0,
      ACCEL_EUNSUPPORTED, -1, "step_00000002 step_00000004 ", "format 7", 0, false },
    { "none is whole", "rm " SHARD0 " step_00000002/*.h5", -1, "", 0, ACCEL_ECORRUPT,
      -1, "step_00000002 step_00000004 ", "none of the 2 checkpoints is intact", 0,
      false },
};

static char root[] = "/tmp/accel-resume.XXXXXX";
static const struct resume_case *now; /* NULL: the checkpoints are made */
static int my_rank;
static char slashes[2000]; /* in the path of the directory */

int __real_openat(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat(int dir, const char *name, int flags, mode_t mode)
{
    char link[64], path[4096];
    ssize_t n;

    if (now && now->rank == my_rank && now->file[0]) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
        n = readlink(link, path, sizeof(path) - 1);
        snprintf(path + (n > 0 ? n : 0), 300, "/%s", name);
        n = (ssize_t)(strlen(path) - strlen(now->file));
        if (n > 0 && strcmp(path + n, now->file) == 0) {
            errno = now->error;
            return -1;
        }
    }
    return __real_openat(dir, name, flags, mode);
}

static accel_status_t open_run(accel_t *run, struct boot *b, accel_error_t *err)
{
    struct model_request r = { .dir = "",
                               .strategy = SHARD_FULL,
                               .compute = ACCEL_F32 };

    my_rank = b->rank;
    run->preemption.lease.fd = run->observe.file.fd = -1;
    run->config.ckpt_save = !now || !now->no_save;
    run->config.ckpt_keep = 9;
    strcpy(run->config.ckpt_metric, "eval_loss");
    retention_open(run);
    snprintf(run->ckpt_dir, sizeof(run->ckpt_dir), "%s%s/now", root, slashes);
    if (backend_cpu_open(&r.backend, 1, err) || model_run_open(run, b, &r, err))
        return err->code;
    return state_identity(run, err);
}

static int save_rank(struct boot *b, void *arg)
{
    accel_t run = { 0 };
    accel_error_t err = { 0 };
    accel_status_t st = open_run(&run, b, &err);

    (void)arg;
    for (run.progress.step = 2; st == ACCEL_OK && run.progress.step <= 4;
         run.progress.step += 2)
        st = save_checkpoint(&run, &err);
    if (st != ACCEL_OK)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    background_close(&run);
    model_run_close(&run);
    return st != ACCEL_OK;
}

static int resume_rank(struct boot *b, void *arg)
{
    const struct resume_case *c = arg;
    accel_t run = { 0 };
    accel_error_t err = { 0 };
    accel_status_t st = open_run(&run, b, &err);
    char text[1600];
    bool bad;

    if (st == ACCEL_OK)
        st = resume_run(&run, &err);
    accel_error_format(&err, text, sizeof(text));
    bad = st != c->status || (st == ACCEL_OK && run.progress.step != c->step) ||
          (st == ACCEL_OK && run.progress.saved_step != c->step) ||
          (c->says_rank == b->rank && !strstr(text, c->says));
    if (bad)
        fprintf(stderr, "# rank %d: status %d, step %lld: %s\n", b->rank, (int)st,
                (long long)run.progress.step, text);
    background_close(&run);
    model_run_close(&run);
    return bad;
}

static void shell_in(const char *dir, const char *cmd)
{
    char all[1000];

    snprintf(all, sizeof(all), "cd '%s/%s' && %s", root, dir, cmd);
    if (system(all) != 0)
        abort();
}

/* The first bytes of the last box of rank 1's file: rank 1 alone reads them. */
static void damage(void)
{
    shell_in("now",
             "at=$(sed -n 's/^B [0-9x-]* [0-9x]* 1 \\([0-9]*\\) .*/\\1/p' "
             "step_00000004/MANIFEST | tail -n 1) && printf '\\377\\377\\377\\377' | "
             "dd of=" SHARD1 " bs=1 seek=\"$at\" conv=notrunc 2>/dev/null");
}

static const char *names(void)
{
    return world_output(
        "cd '%s/now' && ls -d step_* | sed 's/-[0-9TZ]*$/-T/' | tr '\\n' ' '", root);
}

int main(void)
{
    unsetenv("SLURM_RESTART_COUNT");
    unsetenv("ACCEL_RESTART_COUNT");
    run_folder_new(root);
    tap_is_int(fork_world(2, save_rank, NULL, 240), 0, "two ranks save steps 2 and 4");
    shell_in("", "mv now base");
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        shell_in("", "rm -rf now && cp -R base now");
        now = &cases[i];
        if (strcmp(now->make, "damage") == 0)
            damage();
        else
            shell_in("now", now->make);
        tap_is_int(fork_world(2, resume_rank, (void *)now, 240), 0,
                   "%s: status %d on both, step %lld", now->what, (int)now->status,
                   (long long)now->step);
        tap_is_str(names(), now->names, "%s: what is there afterwards", now->what);
    }
    shell_in("", "rm -rf now && cp -R base now");
    now = &cases[0];
    memset(slashes, '/', sizeof(slashes) - 1);
    tap_is_int(fork_world(2, resume_rank, (void *)now, 240), 0, "in a long path");
    run_folder_remove(root);
    return tap_done();
}
