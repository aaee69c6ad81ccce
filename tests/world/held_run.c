/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs whose writes wait at a gate; see held_run.h.
 */
#include "tests/world/held_run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char config[100], out_dir[100], said[8192];
bool trainer_passes;
accel_status_t (*held_write)(accel_ckpt_saving_t *g, accel_error_t *err);

/* ---- the gate -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static bool held;
static pthread_t trains;

void gate(bool hold)
{
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&opened);
    pthread_mutex_unlock(&lock);
}

bool is_trainer(void)
{
    return pthread_equal(pthread_self(), trains);
}

accel_status_t __wrap_accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err);
accel_status_t __wrap_accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err)
{
    pthread_mutex_lock(&lock);
    while (held && !(trainer_passes && is_trainer()))
        pthread_cond_wait(&opened, &lock);
    pthread_mutex_unlock(&lock);
    return (held_write ? held_write : __real_accel_ckpt_save_write)(g, err);
}

/* ---- runs ------------------------------------------------------------------------ */

static void log_line(void *user, accel_log_level_t level, const char *line)
{
    static const char *const about[] = { "checkpoint", "received", "lost", "keep_best",
                                         "saved to" };
    const size_t used = strlen(said);

    (void)user;
    (void)level;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(about); i++)
        if (strstr(line, about[i])) {
            snprintf(said + used, sizeof(said) - used, "%s\n", line);
            return;
        }
}

void held_config(int world, const char *more)
{
    FILE *f;

    number_config(config, world, 1, "FULL_SHARD", true);
    f = fopen(config, "a");
    fprintf(f, "    every_steps: 2\n    every_minutes: 0\n%s", more);
    fclose(f);
}

uint64_t held_seed;

accel_status_t begin(struct number_run *k, int64_t steps)
{
    const accel_optimizer_t sgd = { sizeof(sgd), .kind = ACCEL_SGD, .lr = 1 };
    const accel_loop_t loop = { sizeof(loop), .steps = steps, .batch = 1,
                                .seed = held_seed, .out_dir = out_dir };

    trains = pthread_self();
    said[0] = '\0';
    if (number_models(k, config))
        return k->err.code;
    k->run->log.fn = log_line;
    if (accel_model_add(k->run, "a", k->a, &k->err))
        return k->err.code;
    k->oa = accel_optim_add(k->run, "oa", &k->a, 1, &sgd, &k->err);
    return k->oa ? accel_prepare_all(k->run, &loop, &k->err) : k->err.code;
}

accel_status_t step(struct number_run *k)
{
    accel_status_t st = number_micro(k, k->a, 1);

    return st ? st : accel_step(k->run, &k->err);
}

accel_status_t steps(struct number_run *k, int n)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < n && st == ACCEL_OK; i++)
        st = step(k);
    return st;
}

int64_t newest(void)
{
    accel_ckpt_info_t *list = NULL;
    char dir[sizeof(out_dir) + 20];
    int64_t at = -1;
    size_t n = 0;

    snprintf(dir, sizeof(dir), "%s/checkpoints", out_dir);
    if (!accel_ckpt_list(dir, &list, &n, NULL))
        for (size_t i = 0; i < n && at < 0; i++)
            at = list[i].complete ? list[i].step : -1;
    free(list);
    return at;
}

bool tells(const struct boot *b, const accel_error_t *err, const char *text)
{
    return b->rank == 0 ? strstr(err->text, text) != NULL : !err->text[0];
}
