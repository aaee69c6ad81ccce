/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as a user writes it: a model from a directory of Hugging Face, its logits,
 * and the model written to another directory. Prints a line per call, the number of
 * tokens and the logits: of the last token behind 1, 2 ... LENGTH of them, or all of
 * bert's at once.
 *     weights IN OUT DTYPE SHARD_BYTES LENGTH WORK
 */
#include <stdio.h>
#include <stdlib.h>

#include "accel.h"

#define MOST 1024 /* tokens of two rows */

static int failed(const accel_error_t *err)
{
    char text[1536];

    accel_error_format(err, text, sizeof(text));
    fprintf(stderr, "%s\n", text);
    return accel_exit_code(err->code);
}

static void say(void *user, accel_log_level_t level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

/* Two rows of n tokens: ids, and for bert two segments, and three tokens of padding. */
static accel_tensor_t *weights_forward(accel_t *run, accel_module_t *model, int n,
                                       int inputs, accel_error_t *err)
{
    const int64_t dims[] = { 2, n };
    int32_t value[3][MOST];
    accel_tensor_t *in[3];

    accel_inference_mode(run, 1);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < n; i++) {
            value[0][b * n + i] = (7 * i + 5 * b + 3) % 41;
            value[1][b * n + i] = 2 * i >= n;
            value[2][b * n + i] = b == 0 || i < n - 3;
        }
    for (int k = 0; k < inputs; k++)
        in[k] = accel_input(run, ACCEL_I32, 2, dims, value[k], err);
    return accel_call(model, in, inputs);
}

static accel_status_t print_logits(accel_t *run, accel_module_t *model, int n,
                                   int inputs, accel_error_t *err)
{
    accel_tensor_t *y = weights_forward(run, model, n, inputs, err);
    size_t elems = 1;
    const int64_t *dim;
    accel_status_t st;
    float *logits;

    if (!y)
        return accel_backward(run, NULL, err); /* has the forward's error */
    for (int d = accel_tensor_shape(y, &dim) - 1; d >= 0; d--)
        elems *= (size_t)dim[d];
    logits = malloc(elems * sizeof(*logits));
    if (!logits)
        exit(71);
    st = accel_tensor_read(y, logits, elems, err);
    printf("%d", n);
    for (size_t i = 0; !st && i < elems; i++)
        printf(" %.9g", (double)logits[i]);
    printf("\n");
    free(logits);
    return st;
}

static accel_status_t print_all(accel_t *run, accel_module_t *model, int length,
                                accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    if (accel_module_find(model, "bert.encoder.layer.0"))
        return print_logits(run, model, length, 3, err);
    for (int n = 1; n <= length && !st; n++)
        st = print_logits(run, model, n, 1, err);
    return st;
}

int main(int argc, char **argv)
{
    accel_options_t options = { sizeof(options), .run_name = "weights", .log = say };
    accel_job_t job = { sizeof(job), .steps = 1, .batch = 2, .seed = 1 };
    accel_error_t err = { 0 };
    accel_t *run = NULL;

    if (argc != 7 || atoi(argv[5]) < 1 || atoi(argv[5]) > MOST / 2)
        return 64;
    job.out_dir = argv[6];
    if (accel_open(&run, &options, &err))
        return failed(&err);
    job.model = accel_model_open(run, argv[1], NULL);
    if (accel_prepare(run, &job, &err) || accel_load_weights(run, argv[1], &err) ||
        print_all(run, job.model, atoi(argv[5]), &err) ||
        accel_save_weights(run, argv[2], argv[3], atoll(argv[4]), &err))
        return failed(&err);
    accel_close(run, NULL);
    return 0;
}
