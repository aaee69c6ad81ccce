/* SPDX-License-Identifier: Apache-2.0
 *
 * Can the run keep its weights and gradients as the config says? In: config,
 * optimizers, backend. Out: nothing, or why it cannot.
 */
#include "run/run.h"

static accel_status_t refuse_masters(accel_error_t *err, const char *cure,
                                     const char *why)
{
    return accel_fail(err, A0902, cure,
                      "accel.precision.masters needs float32 here: %s", why);
}

/* An average is float32 and changes places with the weights, so that neither may round
 * what the other holds; an own optimizer is shown its weights as float32. */
accel_status_t masters_begin(const accel_t *run, accel_error_t *err)
{
    if (run->config.masters == MASTERS_F32)
        return ACCEL_OK;
    for (int i = 0; i < run->optims; i++) {
        if (run->optim[i].averaged)
            return refuse_masters(
                err, "leave one of the two out",
                "moving averages (accel_ema) go with float32 weights");
        if (run->optim[i].own.update)
            return refuse_masters(err, "set accel.precision.masters: float32",
                                  "an optimizer of the program works on float32");
    }
    return ACCEL_OK;
}

static accel_status_t refuse_gradients(accel_error_t *err, const char *why)
{
    return accel_fail(err, A0902, "set accel.precision.gradients: float32",
                      "accel.precision.gradients needs float32 here: %s", why);
}

/* Whole copies are summed where they rest; offloaded ones come to the device as they
 * rest. An average changes places with the weights by way of the gradients' memory; an
 * own optimizer is shown float32. */
accel_status_t gradients_begin(const accel_t *run, accel_error_t *err)
{
    if (run->config.gradients == GRADIENTS_F32)
        return ACCEL_OK;
    if (run_offloads(run))
        return refuse_gradients(err, "shards are offloaded to host memory");
    if (run->boot.size > 1 && config_strategy(&run->config) == SHARD_NONE)
        return refuse_gradients(err, "each rank has whole copies");
    for (int i = 0; i < run->optims; i++) {
        if (run->optim[i].averaged)
            return refuse_gradients(err,
                                    "moving averages (accel_ema) use their memory");
        if (run->optim[i].own.update)
            return refuse_gradients(err,
                                    "an optimizer of the program works on float32");
    }
    return ACCEL_OK;
}
