/* SPDX-License-Identifier: Apache-2.0
 * byo: bring your own compute. A two-layer network learns sin(3a) * b; its forward and
 * backward are written by hand. The library shards, updates, saves and resumes it:
 *   ACCEL_MIXED_PRECISION=no srun -n 2 --accel-config=fsdp.yaml ./byo [OUT [STEPS]] */
#include <math.h>
#include <stdlib.h>
#include <accel.h>

enum { IN = 2, WIDE = 48, BATCH = 16 };

/* A sample is made from its index: the same on every rank and in every attempt. */
static int fetch(void *user, int64_t index, void *const *dst)
{
    uint32_t h = (uint32_t)index * 2654435761u + 12345u;
    float *x = dst[0], *y = dst[1];
    (void)user;
    for (int i = 0; i < IN; i++) {
        h = (h ^ h >> 15) * 2246822519u + 1u;
        x[i] = (float)(h >> 8) / 8388608.0f - 1.0f;
    }
    *y = sinf(3.0f * x[0]) * x[1];
    return 0;
}

/* y = x w^T + b for the BATCH rows of x; w is [out, in]. */
static void linear(const float *x, const float *w, const float *b, float *y, int in,
                   int out)
{
    for (int r = 0; r < BATCH; r++)
        for (int o = 0; o < out; o++) {
            double sum = b[o];
            for (int i = 0; i < in; i++)
                sum += (double)x[r * in + i] * w[o * in + i];
            y[r * out + o] = (float)sum;
        }
}

/* Adds to dw and db, and writes dx (NULL: not wanted). */
static void linear_backward(const float *x, const float *w, const float *dy, float *dx,
                            float *dw, float *db, int in, int out)
{
    for (int r = 0; r < BATCH; r++)
        for (int o = 0; o < out; o++) {
            for (int i = 0; i < in; i++)
                dw[o * in + i] += dy[r * out + o] * x[r * in + i];
            db[o] += dy[r * out + o];
        }
    for (int r = 0; dx && r < BATCH; r++)
        for (int i = 0; i < in; i++) {
            double sum = 0;

            for (int o = 0; o < out; o++)
                sum += (double)dy[r * out + o] * w[o * in + i];
            dx[r * in + i] = (float)sum;
        }
}

/* Mean of the squared differences, and dy, its derivative. */
static float squares(const float *y, const float *want, float *dy, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        dy[i] = 2.0f * (y[i] - want[i]) / (float)n;
        sum += (double)(y[i] - want[i]) * (y[i] - want[i]);
    }
    return (float)(sum / n);
}

/* One micro-batch. A failed call fills `err`, and the next one returns it too. */
static accel_status_t micro_batch(accel_t *run, accel_unit_t *first, accel_unit_t *last,
                                  accel_error_t *err)
{
    float x[BATCH * IN], want[BATCH], h[BATCH * WIDE], y[BATCH], dy[BATCH];
    float dh[BATCH * WIDE], *dw, *db, loss;
    accel_tensor_t *batch[2];

    if (accel_next(run, batch, 2, err) ||
        accel_tensor_read(batch[0], x, BATCH * IN, err) ||
        accel_tensor_read(batch[1], want, BATCH, err) ||
        accel_unit_want(first, err)) /* its parameters are gathered here ... */
        return err->code;
    linear(x, accel_unit_values(first, 0), accel_unit_values(first, 1), h, IN, WIDE);
    accel_unit_done(first); /* ... and may be freed again */
    for (int i = 0; i < BATCH * WIDE; i++)
        h[i] = h[i] > 0 ? h[i] : 0;
    if (accel_unit_want(last, err) || accel_unit_gradient(last, 0, &dw, err) ||
        accel_unit_gradient(last, 1, &db, err))
        return err->code;
    linear(h, accel_unit_values(last, 0), accel_unit_values(last, 1), y, WIDE, 1);
    loss = squares(y, want, dy, BATCH);
    linear_backward(h, accel_unit_values(last, 0), dy, dh, dw, db, WIDE, 1);
    accel_unit_done(last);
    for (int i = 0; i < BATCH * WIDE; i++)
        dh[i] = h[i] > 0 ? dh[i] : 0;
    if (accel_unit_gradient(first, 0, &dw, err) ||
        accel_unit_gradient(first, 1, &db, err))
        return err->code;
    linear_backward(x, NULL, dh, NULL, dw, db, IN, WIDE);
    return accel_finish_backward(run, loss, err) ? err->code : accel_step(run, err);
}

/* Declares a linear layer as one unit: what is gathered and reduced together. */
static accel_status_t declare(accel_t *run, const char *name, int64_t out, int64_t in,
                              accel_unit_t **unit_out, accel_error_t *err)
{
    const accel_init_t spread = { ACCEL_INIT_UNIFORM, 0.5f }, zeros = { 0 };
    const int64_t weight[] = { out, in };

    *unit_out = accel_unit_new(run, name, err);
    if (!*unit_out ||
        accel_unit_param(*unit_out, "weight", 2, weight, spread, NULL, err))
        return err->code;
    return accel_unit_param(*unit_out, "bias", 1, weight, zeros, NULL, err);
}

static accel_status_t train(accel_t *run, accel_job_t *job, accel_error_t *err)
{
    const accel_field_t pair[] = { { ACCEL_F32, 1, { IN } }, { ACCEL_F32, 1, { 1 } } };
    accel_unit_t *first, *last;

    if (accel_dataset_new(&job->data, 4096, pair, 2, fetch, NULL, 0, err) ||
        declare(run, "first", WIDE, IN, &first, err) ||
        declare(run, "last", 1, WIDE, &last, err))
        return err->code;
    if (accel_stream(run) || accel_unit_dtype(first) != ACCEL_F32)
        return accel_error_set(err, ACCEL_EUNSUPPORTED, "byo runs on CPUs in float32",
                               "set use_cpu: true and mixed_precision: 'no'");
    accel_prepare(run, job, err);
    while (!err->code && accel_more(run))
        micro_batch(run, first, last, err);
    return err->code;
}

int main(int argc, char **argv)
{
    const accel_options_t o = { sizeof(o), .run_name = "byo", .log = accel_log_stderr };
    accel_optimizer_t adam = { sizeof(adam), .lr = 1e-2f };
    accel_job_t job = { sizeof(job), .batch = BATCH, .seed = 1, .optimizer = &adam };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    job.out_dir = argc > 1 ? argv[1] : NULL;
    job.steps = argc > 2 ? atoi(argv[2]) : 200;
    if (!accel_open(&run, &o, &err))
        train(run, &job, &err);
    accel_close(run, NULL);
    accel_dataset_close(job.data);
    return accel_report(&err);
}
