/* SPDX-License-Identifier: Apache-2.0
 *
 * state_kill [KILLS [SEED]]: two ranks save and load the state of their run in a tight
 * loop; kill -9 of one or both at random moments. What the next life finds is whole, or
 * not there, and no older than the last save that was reported done.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/common.h"
#include "common/env_names.h"
#include "tests/tap.h"
#include "tests/world/open_world.h"

enum { RANKS = 2, ROWS = 300, COLS = 40, ELEMS = ROWS * COLS };

struct lives {
    /* the last number that was saved, and whose load was seen */
    volatile int64_t done, found;
    volatile pid_t rank[RANKS];
    volatile int torn; /* loads that found a mixture */
    volatile int refused;
};

static char dir[64] = "/tmp/accel-state-kill-XXXXXX";
static struct lives *now;

/* ---- a program whose whole state is one number ----------------------------------- */

static accel_tensor_t *no_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)n;
    return accel_mean(accel_linear(in[0], *(accel_tensor_t **)accel_module_state(m),
                                   NULL, ACCEL_ACT_NONE),
                      -1);
}

static accel_status_t save_number(void *user, accel_bytes_t *to, accel_error_t *err)
{
    return accel_bytes_put(to, user, sizeof(int64_t), err);
}

static accel_status_t load_number(void *user, const accel_saved_t *from,
                                  accel_error_t *err)
{
    size_t bytes = 0;
    const void *data = accel_saved_bytes(from, 0, &bytes);

    if (!data || bytes != sizeof(int64_t))
        return accel_error_set(err, ACCEL_ECORRUPT, "no number", NULL);
    memcpy(user, data, bytes);
    return ACCEL_OK;
}

static accel_status_t open_number(accel_t **run_out, int64_t *number,
                                  accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Net", no_forward,
                                       sizeof(accel_tensor_t *) };
    const int64_t dims[] = { ROWS, COLS };
    char config[96];
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1 };
    accel_job_t job = { sizeof(job), .steps = 9, .batch = 1, .out_dir = dir };
    accel_status_t st;

    snprintf(config, sizeof(config), "%s/config.yaml", dir);
    st = accel_open(run_out, &o, err);
    if (st)
        return st;
    accel_register(*run_out, "number", 1, ACCEL_STATE_COMMON, save_number, load_number,
                   number, err);
    job.model = accel_module_new(*run_out, &cls, NULL, NULL);
    *(accel_tensor_t **)accel_module_state(job.model) = accel_param(
        job.model, "weight", 2, dims, (accel_init_t){ ACCEL_INIT_ZEROS, 0 });
    return accel_prepare(*run_out, &job, err);
}

/* The newest state: the object and every weight have the same number. */
static accel_status_t load_newest(accel_t *run, const int64_t *number,
                                  accel_error_t *err)
{
    static float values[ELEMS];
    accel_status_t st = accel_load_state(run, NULL, err);

    if (!st)
        st = accel_param_read(run, "weight", ACCEL_ALL_RANKS, values, ELEMS, err);
    for (int i = 0; !st && i < ELEMS; i++)
        if (values[i] != (float)*number) {
            now->torn++;
            return ACCEL_ECORRUPT;
        }
    return st;
}

static accel_status_t save_next(accel_t *run, int64_t *number, accel_error_t *err)
{
    static float values[ELEMS];
    accel_status_t st;

    ++*number;
    for (int i = 0; i < ELEMS; i++)
        values[i] = (float)*number;
    st = accel_param_write(run, "weight", values, ELEMS, err);
    return st ? st : accel_save_state(run, NULL, err);
}

static int live(struct boot *b, void *arg)
{
    accel_error_t err = { 0 };
    int64_t number = 0;
    accel_t *run = NULL;
    accel_status_t st;

    (void)arg;
    open_world_join(b);
    st = open_number(&run, &number, &err);
    now->rank[b->rank] = getpid();
    if (!st && now->done > 0) {
        st = load_newest(run, &number, &err);
        now->refused += st != ACCEL_OK && st != ACCEL_EPEER;
        if (b->rank == 0 && !st)
            now->found = number;
    }
    while (!st) {
        st = save_next(run, &number, &err);
        if (!st && b->rank == 0)
            now->done = number;
        if (!st && number % 2 == 0)
            st = load_newest(run, &number, &err);
    }
    /* the other one was killed, as a rule */
    if (st != ACCEL_EPEER)
        fprintf(stderr, "# rank %d: %s: %s\n", b->rank, err.where, err.text);
    accel_close(run, NULL);
    return st == ACCEL_EPEER ? 0 : 1;
}

/* ---- lives ----------------------------------------------------------------------- */

static uint64_t state;

static int draw(int n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)((state >> 11) % (uint64_t)n);
}

/* Both ranks, which end with their parent, or one. */
static void kill_some(pid_t parent)
{
    int who = draw(3);

    if (who == RANKS)
        kill(parent, SIGKILL);
    else
        kill(now->rank[who], SIGKILL);
}

/* After a first save, at a random point of the next one or two; sometimes in the load at
 * the beginning. Returns false when the ranks ended by themselves. */
static bool one_life(void)
{
    int64_t before = now->done, begun;
    bool early = before > 0 && draw(3) == 0;
    int status = 0;
    pid_t pid;

    now->rank[0] = now->rank[1] = 0;
    now->found = 0;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        alarm(HANG_S);
        _exit(fork_world(RANKS, live, NULL, HANG_S) > 128 ? 0 : 1);
    }
    while ((!now->rank[0] || !now->rank[1] || (!early && now->done == before)) &&
           waitpid(pid, &status, WNOHANG) == 0)
        usleep(200);
    if (!now->rank[0] || !now->rank[1])
        return false;
    begun = clock_ns();
    while (!early && now->done == before + 1 && clock_ns() - begun < 50000000)
        usleep(100);
    usleep(early ? (useconds_t)draw(20000)
                 : (useconds_t)((clock_ns() - begun) / 1000 * draw(2000) / 1000));
    kill_some(pid);
    waitpid(pid, &status, 0);
    return true;
}

int main(int argc, char **argv)
{
    int kills = argc > 1 ? atoi(argv[1]) : 4, older = 0, ended = 0;
    char path[128], command[96];
    FILE *f;

    now = fork_shared(sizeof(*now));
    state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
    unsetenv(ENV_RESOLVED);
    unsetenv(ENV_CONFIG);
    if (!mkdtemp(dir))
        tap_skip_all("no directory for temporary files");
    snprintf(path, sizeof(path), "%s/config.yaml", dir);
    f = fopen(path, "w");
    if (!f || fputs("distributed_type: FSDP\nuse_cpu: true\naccel:\n  checkpoint:\n"
                    "    save: false\n    keep: 2\n",
                    f) < 0)
        tap_skip_all("no config can be written");
    fclose(f);
    for (int i = 0; i < kills && !ended; i++) {
        int64_t before = now->done;

        ended += !one_life();
        older += now->found > 0 && now->found < before;
    }
    tap_is_int(ended, 0, "%d kills: each life goes on with saving", kills);
    tap_is_int(now->torn, 0, "what was there is whole (%lld saves)",
               (long long)now->done);
    tap_is_int(now->refused, 0, "and can be loaded");
    tap_is_int(older, 0, "no save that was reported done is lost");
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    tap_ok(system(command) == 0, "removed");
    return tap_done();
}
