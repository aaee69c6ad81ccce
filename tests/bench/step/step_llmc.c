/* SPDX-License-Identifier: Apache-2.0
 *
 * The same training step in llm.c, on request (see peer.h): GPT-2 124M, AdamW, float32.
 * Its train_gpt2.c is taken as it is, without its main (TESTING, as its own tests do
 * it), and the step is that main's.   step_llmc BATCH TIME   (step_llmc.sh builds and
 * runs it)
 */
#include "train_gpt2.c"

#include <omp.h>

static void make_model(GPT2 *m)
{
    uint32_t state = 1;

    memset(m, 0, sizeof(*m));
    m->config = (GPT2Config){ .max_seq_len = 1024,
                              .vocab_size = 50257,
                              .padded_vocab_size = 50304,
                              .num_layers = 12,
                              .num_heads = 12,
                              .channels = 768 };
    fill_in_parameter_sizes(m->param_sizes, m->config);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        m->num_parameters += m->param_sizes[i];
    m->params_memory = malloc_and_point_parameters(&m->params, m->param_sizes);
    for (size_t i = 0; i < m->num_parameters; i++) { /* deviation 0.02 */
        state = state * 1664525 + 1013904223;
        m->params_memory[i] = ((float)(state >> 8) / (float)(1 << 24) - 0.5f) * 0.07f;
    }
    for (int i = 0; i < m->config.num_layers * m->config.channels; i++)
        m->params.ln1w[i] = m->params.ln2w[i] = 1.0f;
    for (int i = 0; i < m->config.channels; i++)
        m->params.lnfw[i] = 1.0f;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The gradients are set to zero within the backward's time. */
static void one_step(GPT2 *m, int *ids, int batch, int length, int step, FILE *to)
{
    int tokens = batch * length;
    double from, middle, end;

    for (int i = 0; i < 2 * tokens; i++) {
        int at = i % tokens + i / tokens + step * 31;

        ids[i] = (int)((long)at * 7919 % m->config.vocab_size);
    }
    from = now_ms();
    gpt2_forward(m, ids, ids + tokens, (size_t)batch, (size_t)length);
    middle = now_ms();
    gpt2_zero_grad(m);
    gpt2_backward(m);
    end = now_ms();
    gpt2_update(m, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step + 1);
    fprintf(to, "step %.3f %.3f %.3f\n", middle - from, end - middle, now_ms() - end);
}

int main(int argc, char **argv)
{
    int batch = argc == 3 ? atoi(argv[1]) : 0, length = argc == 3 ? atoi(argv[2]) : 0;
    FILE *to = fdopen(dup(1), "w");
    int *ids = calloc((size_t)batch * (size_t)length * 2, sizeof(*ids)), step = 0;
    char line[64];
    GPT2 model;

    /* It says things of its own on stdout. */
    if (batch < 1 || length < 1 || !to || !ids || !freopen("/dev/null", "w", stdout))
        return 64;
    make_model(&model);
    fprintf(to, "ready llm.c, compiler %s, %d threads\n", __VERSION__,
            omp_get_max_threads());
    fflush(to);
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "step\n") == 0)
            one_step(&model, ids, batch, length, step++, to);
        else
            fprintf(to, "end\n");
        fflush(to);
    }
    gpt2_free(&model);
    free(ids);
    return 0;
}
