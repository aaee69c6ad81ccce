/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as a user writes it: a gpt2 from a directory of Hugging Face, its logits behind
 * the first SEQ bytes of TEXT, and the model written to another directory. Prints "ids"
 * and "logits", one line each; takes the time with OUT "-", which is not written.
 *     weights IN OUT DTYPE SHARD_BYTES TEXT SEQ WORK
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel.h"

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

/* The model's view of the first sample. */
static accel_status_t print_logits(accel_t *run, accel_module_t *model, int seq,
                                   int vocab, accel_error_t *err)
{
    float *ids = calloc((size_t)seq, sizeof(*ids));
    float *logits = calloc((size_t)vocab, sizeof(*logits));
    accel_tensor_t *batch[2], *y;
    accel_status_t st;

    if (!ids || !logits)
        exit(71);
    st = accel_next(run, batch, 2, err);
    if (!st)
        st = accel_tensor_read(batch[0], ids, (size_t)seq, err);
    y = st ? NULL : accel_call(model, batch, 1);
    if (!st && y)
        st = accel_tensor_read(y, logits, (size_t)vocab, err);
    else if (!st)
        st = accel_backward(run, NULL, err); /* has the forward's error */
    for (int i = 0; !st && i < seq; i++)
        printf("%s%d", i ? " " : "ids ", (int)ids[i]);
    for (int i = 0; !st && i < vocab; i++)
        printf("%s%.9g", i ? " " : "\nlogits ", (double)logits[i]);
    printf("\n");
    free(ids);
    free(logits);
    return st;
}

int main(int argc, char **argv)
{
    accel_options_t options = { .run_name = "weights", .log = say };
    accel_job_t job = { .steps = 1, .batch = 1, .seed = 1 };
    accel_error_t err = { 0 };
    accel_gpt2_t cfg;
    accel_t *run = NULL;
    int seq;

    if (argc != 8)
        return 64;
    seq = atoi(argv[6]);
    job.out_dir = argv[7];
    if (accel_gpt2_read_config(argv[1], &cfg, &err) ||
        accel_dataset_open(&job.data, argv[5], seq, 0, &err) ||
        accel_open(&run, &options, &err))
        return failed(&err);
    job.model = accel_gpt2_new(run, &cfg, NULL);
    if (accel_prepare(run, &job, &err) || accel_load_weights(run, argv[1], &err) ||
        print_logits(run, job.model, seq, cfg.vocab, &err) ||
        (strcmp(argv[2], "-") != 0 &&
         accel_save_weights(run, argv[2], argv[3], atoll(argv[4]), &err)))
        return failed(&err);
    accel_close(run, NULL);
    accel_dataset_close(job.data);
    return 0;
}
