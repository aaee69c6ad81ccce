/* SPDX-License-Identifier: Apache-2.0
 *
 * The scales of linears that multiply in 8 bits. In: the config and the models; the
 * largest magnitudes that forwards and backwards leave in the histories. Out: weights
 * that carry scales, which all move once at the end of a step and are the same on all
 * ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "run/run.h"

/* Three histories of a linear then take 12 MiB. */
#define LONGEST_HISTORY (1 << 20)

static bool blocks_possible(const struct backend *be, enum fp8_blocks blocks)
{
    return blocks == FP8_NO_BLOCKS ||
           (be->fp8_blocks &
            (blocks == FP8_BLOCKS_128 ? BACKEND_BLOCKS_128 : BACKEND_BLOCKS_32));
}

static accel_status_t fp8_possible(const accel_t *run, accel_error_t *err)
{
    static const char length[] = "fp8_amax_history_len";
    const int64_t history = config_get_int(&run->config, length);
    const struct fp8_recipe recipe = fp8_recipe_of(&run->config);
    char where[256];

    if (history > LONGEST_HISTORY)
        return accel_fail_at(err, A0170,
                             config_where(&run->config, length, where, sizeof(where)),
                             "use 1 to 1048576", "'%s: %lld' is not supported", length,
                             (long long)history);
    if (!blocks_possible(run->backend, recipe.blocks))
        return accel_fail_at(
            err, A0170, config_where(&run->config, "fp8_recipe", where, sizeof(where)),
            blocks_possible(run->backend, FP8_BLOCKS_128)
                ? "use accel.precision.fp8_recipe: block, or accel.device: cpu"
                : "use accel.precision.fp8_recipe: current, or accel.device: cpu",
            "'fp8_recipe: %s' is not supported on this GPU (%s)",
            fp8_recipe_word(&recipe), run->backend->isa);
    if (run->backend->fp8 != BACKEND_FP8_NONE)
        return ACCEL_OK;
    return accel_fail_at(
        err, A0170, config_where(&run->config, "mixed_precision", where, sizeof(where)),
        "use mixed_precision: bf16, or accel.device: cpu",
        "'mixed_precision: fp8' is not supported on this GPU (%s): it takes one of "
        "capability 8.9, 9.0 or 10.0",
        run->backend->isa);
}

/* What the user may not expect. */
static void say_linears(const accel_t *run)
{
    const struct fp8_linears *l = &run->fp8.linears;

    if (run->boot.rank != 0)
        return;
    if (l->count == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "mixed_precision fp8 has no effect: no linear between the first and "
                   "the last has sizes that are multiples of %d; "
                   "accel.precision.modules names others",
                   FP8_MULTIPLE);
    else
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "fp8: %d of %d linears multiply in 8 bits", l->count, l->candidates);
}

accel_status_t fp8_scales_begin(accel_t *run, accel_error_t *err)
{
    struct fp8_scales *f = &run->fp8;
    accel_module_t *root[RUN_MAX_TREES];
    accel_status_t st;

    if (!precision_of(&run->config).fp8)
        return ACCEL_OK;
    for (int i = 0; i < run->models; i++)
        root[i] = run->model[i].root;
    st = fp8_possible(run, err);
    if (st == ACCEL_OK)
        st = fp8_linears_open(&f->linears, root, run->models, &run->config, err);
    if (st == ACCEL_OK)
        st = fp8_linears_place(&f->linears, run->backend, err);
    if (st != ACCEL_OK)
        return st;
    f->seen = calloc(FP8_TENSORS * (size_t)f->linears.count + 1, sizeof(*f->seen));
    if (!f->seen)
        return accel_fail_nomem(err, "the scales of linears",
                                FP8_TENSORS * (size_t)f->linears.count * sizeof(float));
    say_linears(run);
    return ACCEL_OK;
}

void fp8_scales_free(accel_t *run)
{
    free(run->fp8.seen);
    free(run->fp8.found);
    fp8_linears_close(&run->fp8.linears);
}

/* One reduction for all linears: each history's place 0 becomes the largest of all
 * ranks. */
static accel_status_t fp8_agree(accel_t *run, accel_error_t *err)
{
    const struct fp8_linears *l = &run->fp8.linears;
    const size_t count = FP8_TENSORS * (size_t)l->count;
    float *seen = run->fp8.seen;
    accel_status_t st;

    fp8_linears_look(&run->fp8.linears);
    st = run->backend->check(run->backend, err);
    if (st != ACCEL_OK)
        return st;
    for (size_t i = 0; i < count; i++)
        seen[i] = fp8_history(&l->linear[i / FP8_TENSORS],
                              (enum fp8_tensor)(i % FP8_TENSORS))[0];
    st = comm_all_reduce(run->comm, seen, count, ACCEL_F32, COMM_MAX, err);
    for (size_t i = 0; i < count && st == ACCEL_OK; i++)
        fp8_history(&l->linear[i / FP8_TENSORS],
                    (enum fp8_tensor)(i % FP8_TENSORS))[0] = seen[i];
    return st;
}

accel_status_t fp8_scales_end_step(accel_t *run, accel_error_t *err)
{
    struct fp8_scales *f = &run->fp8;
    accel_status_t st;

    if (!fp8_scales_kept(run))
        return ACCEL_OK;
    st = fp8_agree(run, err);
    if (st != ACCEL_OK)
        return st;
    f->steps++;
    for (int i = 0; i < f->linears.count; i++)
        fp8_update(&f->linears.linear[i], f->steps % f->linears.recipe.interval == 0);
    fp8_linears_show(&f->linears);
    return ACCEL_OK;
}

void fp8_scales_forget(accel_t *run)
{
    fp8_linears_show(&run->fp8.linears);
}
