/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives of one training and what they leave: saves_world.h.
 */
#include "tests/faults/saves_world.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/accel_ckpt.h"
#include "common/env_names.h"
#include "tests/world/ckpt_world.h"
#include "tests/world/open_world.h"

#define COLS 40

char saves_dir[128], saves_root[160];
static char config[sizeof(saves_dir) + 20];
struct saves_said *saves_said;

void saves_use(const char *dir)
{
    unsetenv(ENV_RESOLVED);
    unsetenv(ENV_CONFIG);
    unsetenv("ACCEL_RESUME");
    snprintf(saves_dir, sizeof(saves_dir), "%s", dir);
    snprintf(saves_root, sizeof(saves_root), "%s/checkpoints", saves_dir);
    saves_said = fork_shared(sizeof(*saves_said));
}

bool saves_new(void)
{
    char dir[] = "/tmp/accel-saves-XXXXXX";

    if (!mkdtemp(dir))
        return false;
    saves_use(dir);
    return true;
}

void saves_forget(void)
{
    char node[sizeof(saves_dir) + 10];

    snprintf(node, sizeof(node), "%s/node", saves_dir);
    world_rmtree(node);
    world_rmtree(saves_root);
}

void saves_end(void)
{
    world_rmtree(saves_dir);
}

/* ---- a life ---------------------------------------------------------------------- */

static accel_tensor_t *net_forward(accel_module_t *m, accel_tensor_t *const *in, int n)
{
    (void)n;
    return accel_sum(accel_linear(in[0], *(accel_tensor_t **)accel_module_state(m),
                                  NULL, ACCEL_ACT_NONE),
                     -1);
}

static accel_module_t *net_new(accel_t *run, int64_t rows)
{
    static const accel_class_t cls = { sizeof(cls), "Net", net_forward,
                                       sizeof(accel_tensor_t *) };
    const int64_t dims[] = { rows, COLS };
    accel_module_t *m = accel_module_new(run, &cls, NULL, NULL);

    *(accel_tensor_t **)accel_module_state(m) = accel_param(
        m, "w", 2, dims, (accel_init_t){ ACCEL_INIT_CONSTANT, SAVES_START });
    return m;
}

static void note_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user;
    if (level != ACCEL_LOG_WARN ||
        (!strstr(line, "cannot save the") && !strstr(line, "local_dir failed") &&
         !strstr(line, "cannot copy the checkpoint")))
        return;
    saves_said->failures++;
    snprintf(saves_said->failure, sizeof(saves_said->failure), "%s", line);
}

static accel_status_t begin(accel_t **run_out, accel_module_t **net_out,
                            const struct saves_life *life, accel_error_t *err)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_options_t o = { sizeof(o), .config_file = config, .threads = 1,
                                .log = note_line };
    const accel_loop_t loop = { sizeof(loop), .steps = life->steps, .batch = 1,
                                .out_dir = saves_dir };
    accel_status_t st;

    st = accel_open(run_out, &o, err);
    if (st)
        return st;
    *net_out = net_new(*run_out, life->rows);
    st = accel_model_add(*run_out, "a", *net_out, err);
    if (!st && !accel_optim_add(*run_out, "o", net_out, 1, &sgd, err))
        st = err->code;
    return st ? st : accel_prepare_all(*run_out, &loop, err);
}

/* The loss is the sum of all weights, so that each has gradient 1. */
static accel_status_t one_step(accel_t *run, accel_module_t *net, accel_error_t *err)
{
    static const int64_t dims[] = { 1, COLS };
    accel_status_t st = accel_batch_begin(run, err);
    accel_tensor_t *in;
    float ones[COLS];

    for (int i = 0; i < COLS; i++)
        ones[i] = 1;
    if (st)
        return st;
    in = accel_input(run, ACCEL_F32, 2, dims, ones, err);
    st = accel_backward(run, accel_call(net, &in, 1), err);
    return st ? st : accel_step(run, err);
}

/* So short a time for a save that each of them is spread over more of it, at no cost. */
static void spread_saves(accel_t *run)
{
    const double pace = 1e-6 / (double)run->plan.checkpoint_bytes;

    run->preemption.pace.at_once = run->preemption.pace.local = pace;
}

static accel_status_t live_on(const struct saves_life *life, int rank,
                              accel_error_t *err)
{
    accel_module_t *net = NULL;
    accel_t *run = NULL;
    accel_status_t st;

    if (life->open)
        life->open(rank);
    st = begin(&run, &net, life, err);

    if (!st && rank == 0)
        saves_said->begun = accel_steps_done(run);
    if (!st)
        saves_said->pid[rank] = getpid();
    if (!st && life->background)
        spread_saves(run);
    if (!st && life->ready)
        life->ready(rank);
    while (!st && accel_steps_done(run) < life->steps) {
        st = one_step(run, net, err);
        if (rank == 0 && run->progress.saved_step > saves_said->saved)
            saves_said->saved = run->progress.saved_step;
        if (!st && life->after)
            st = life->after(rank, run, err);
    }
    if (!st)
        st = accel_close(run, err);
    else
        accel_close(run, NULL);
    return st;
}

/* In a file of this process: another life may be at work. */
static void write_config(const struct saves_life *life)
{
    FILE *f;

    snprintf(config, sizeof(config), "%s/%d.yaml", saves_dir, (int)getpid());
    f = fopen(config, "w");
    if (!f ||
        fprintf(
            f,
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: "
            "FULL_SHARD\nnum_processes: %d\nuse_cpu: true\naccel:\n  checkpoint:\n"
            "    every_steps: %d\n    every_minutes: 0\n    keep: %d\n    async: %s\n"
            "    when_busy: wait\n    local_dir: %s%s\n",
            life->ranks, life->every ? life->every : 1, life->keep,
            life->background ? "true" : "false", life->local ? saves_dir : "\"\"",
            life->local ? "/node" : "") < 0 ||
        fclose(f))
        abort();
}

static int live_rank(struct boot *b, void *arg)
{
    accel_error_t err = { 0 };
    accel_status_t st = live_on(arg, b->rank, &err);

    if (b->rank == 0) {
        saves_said->end = st;
        saves_said->err = err;
    }
    return st ? accel_exit_code(st) : 0;
}

static void hear_nothing(void)
{
    memset((void *)saves_said, 0, sizeof(*saves_said));
    saves_said->saved = saves_said->begun = -1;
}

int saves_live(const struct saves_life *life, int timeout_s)
{
    struct saves_life copy = *life;

    hear_nothing();
    write_config(life);
    return open_world(life->ranks, 1, live_rank, &copy, timeout_s);
}

accel_status_t saves_live_here(const struct saves_life *life, accel_error_t *err)
{
    hear_nothing();
    write_config(life);
    return live_on(life, 0, err);
}

/* ---- what is there --------------------------------------------------------------- */

/* Every weight of the checkpoint is that of its step. */
static bool weights_right(const char *dir, int64_t step, int64_t rows)
{
    const size_t n = (size_t)(rows * COLS);
    float *values = calloc(n, sizeof(*values));
    const accel_ckpt_box_t box = { .name = "model/a/w",
                                   .dtype = ACCEL_F32,
                                   .ndim = 2,
                                   .global_shape = { rows, COLS },
                                   .shape = { rows, COLS },
                                   .data = values };
    accel_error_t err = { 0 };
    accel_ckpt_t *c = NULL;
    bool right;

    right = values && accel_ckpt_open(&c, dir, &err) == ACCEL_OK &&
            accel_ckpt_read(c, &box, 1, &err) == ACCEL_OK;
    if (!right)
        fprintf(stderr, "# %s: %s: %s\n", dir, err.where, err.text);
    for (size_t i = 0; right && i < n; i++)
        if (values[i] != (float)(SAVES_START - step)) {
            fprintf(stderr, "# %s: weight %zu is %g\n", dir, i, (double)values[i]);
            right = false;
        }
    accel_ckpt_close(c);
    free(values);
    return right;
}

int64_t saves_newest(const char *root, int64_t rows)
{
    accel_ckpt_info_t *list = NULL;
    int64_t newest = -1;
    bool whole = true;
    size_t n = 0;

    if (accel_ckpt_list(root, &list, &n, NULL))
        return -2;
    for (size_t i = 0; i < n; i++) {
        char dir[700];

        if (!list[i].complete)
            continue;
        snprintf(dir, sizeof(dir), "%s/%s", root, list[i].name);
        whole = whole && accel_ckpt_verify(dir, NULL, NULL, NULL) == ACCEL_OK &&
                weights_right(dir, list[i].step, rows);
        newest = list[i].step > newest ? list[i].step : newest;
    }
    free(list);
    return whole ? newest : -2;
}

int saves_leftovers(const char *root)
{
    DIR *d = opendir(root);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)) != NULL)
        n += e->d_name[0] == '.' && strcmp(e->d_name, ".") != 0 &&
             strcmp(e->d_name, "..") != 0 && strcmp(e->d_name, ".lock") != 0;
    if (d)
        closedir(d);
    return n;
}

int saves_parts(void)
{
    char pattern[sizeof(saves_dir) + 30];
    glob_t found;
    int n = 0;

    snprintf(pattern, sizeof(pattern), "%s/node/accel-*/*", saves_dir);
    if (glob(pattern, 0, NULL, &found) == 0) {
        n = (int)found.gl_pathc;
        globfree(&found);
    }
    return n;
}
