/* SPDX-License-Identifier: Apache-2.0
 * gratings: pictures that a program can make itself, for cnn.c and mlp.c: waves in ten
 * directions, shifted at random and under noise; and how often a network is wrong. A
 * sample is a function of its index: the same on every rank and in every life. */
#ifndef GRATINGS_H
#define GRATINGS_H

#include <math.h>
#include <stdio.h>
#include <accel.h>

enum { SIDE = 16, CLASSES = 10, SAMPLES = 10240 };

/* Draw number n of sample `index`, in [0, 1): a hash of both
 * (splitmix64), so no state. */
static double gratings_draw(int64_t index, int n)
{
    uint64_t x = (uint64_t)index * 1024 + (uint64_t)n + 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) / 9007199254740992.0;
}

/* accel_fetch_f: dst[0] is the picture, float32 [1, SIDE, SIDE],
 * dst[1] its class, int32. */
static int gratings_fetch(void *user, int64_t index, void *const *dst)
{
    const double pi = 3.14159265358979323846;
    int kind = (int)(gratings_draw(index, 0) * CLASSES);
    double angle = pi * kind / CLASSES, phase = 2 * pi * gratings_draw(index, 1);
    float *picture = dst[0];

    (void)user;
    for (int i = 0; i < SIDE * SIDE; i++) {
        double along = i / SIDE * cos(angle) + i % SIDE * sin(angle);
        /* A sum of two draws, in [-1, 1): most noise is small. */
        double noise =
            gratings_draw(index, 2 * i + 2) + gratings_draw(index, 2 * i + 3) - 1;

        picture[i] = (float)(sin(1.1 * along + phase) + 4 * noise);
    }
    *(int32_t *)dst[1] = kind;
    return 0;
}

/* One picture of one channel and its label; a fifth is held out for the accuracy. */
static accel_status_t gratings_new(accel_dataset_t **out, accel_error_t *err)
{
    static const accel_field_t fields[] = { { ACCEL_F32, 3, { 1, SIDE, SIDE } },
                                            { ACCEL_I32, 0, { 0 } } };

    return accel_dataset_new(out, SAMPLES, fields, 2, gratings_fetch, NULL, 0.2, err);
}

/* An op of our own: logits [B, C] and labels [B] -> the fraction of B
 * that is wrong, [1]. */
static accel_status_t wrong_shape(const void *attr, const accel_array_t *in, int n,
                                  accel_array_t *out, accel_error_t *err)
{
    (void)attr, (void)n;
    if (in[0].ndim != 2 || in[1].elems != in[0].dims[0])
        return accel_error_set(err, ACCEL_EINVAL, "pass one label per row of logits",
                               NULL);
    out->dtype = ACCEL_F32;
    out->ndim = 1;
    out->dims[0] = 1;
    return ACCEL_OK;
}

static accel_status_t wrong_forward(const void *attr, const accel_array_t *in, int n,
                                    const accel_array_t *out, accel_error_t *err)
{
    const float *logits = in[0].data; /* cast before: any compute dtype will do */
    const int32_t *label = in[1].data;
    int64_t rows = in[0].dims[0], cols = in[0].dims[1], wrong = 0;

    (void)attr, (void)n, (void)err;
    for (int64_t r = 0; r < rows; r++) {
        int64_t best = 0;

        for (int64_t c = 1; c < cols; c++)
            if (logits[r * cols + c] > logits[r * cols + best])
                best = c;
        wrong += best != label[r];
    }
    *(float *)out->data = rows ? (float)wrong / (float)rows : 0.0f;
    return ACCEL_OK;
}

static const accel_op_t wrong_op = { sizeof(wrong_op), "wrong", wrong_shape,
                                     wrong_forward, NULL };

/* What a forward returns: the loss, or the fraction that is wrong while this is 1. */
static int count_wrong;

/* Classes are compared in float32 whatever the compute dtype; so is the op's input. */
static accel_tensor_t *gratings_loss(accel_tensor_t *logits, accel_tensor_t *labels)
{
    accel_tensor_t *in[] = { accel_cast(logits, ACCEL_F32), labels };

    if (count_wrong)
        return accel_apply(&wrong_op, in, 2, NULL);
    return accel_cross_entropy(logits, NULL, NULL, labels, NULL);
}

/* The library's log goes to stderr; stdout has only the accuracy. */
static void gratings_line(void *user, accel_log_level_t level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

/* Trains the model and prints its accuracy on the held-out pictures.
 * Returns the exit code. */
static int gratings_train(accel_t *run, accel_job_t *job)
{
    accel_error_t err = { 0 };
    accel_tensor_t *batch[2];
    double wrong = 1;
    char text[1536];

    /* There is a stream only on a GPU, and our op has no kernel for it. */
    if (accel_stream(run))
        accel_error_set(&err, ACCEL_EUNSUPPORTED,
                        "the op that counts errors runs on the CPU only",
                        "set use_cpu: true in the config");
    else
        accel_prepare(run, job, &err);
    while (!err.code && accel_more(run))
        if (accel_next(run, batch, 2, &err) ||
            accel_backward(run, accel_call(job->model, batch, 2), &err) ||
            accel_step(run, &err))
            break;
    count_wrong = 1;
    if (!err.code && !accel_evaluate(run, 0, &wrong, &err) && accel_is_main(run))
        printf("accuracy %.4f\n", 1 - wrong);
    /* The first error counts. */
    accel_close(run, err.code ? NULL : &err);
    if (err.code) {
        accel_error_format(&err, text, sizeof(text));
        fprintf(stderr, "%s\n", text);
    }
    accel_dataset_close(job->data);
    return accel_exit_code(err.code);
}

#endif
