/* SPDX-License-Identifier: Apache-2.0
 *
 * The training step of GPT-2 124M, or of a Llama of 56 M, against torch and llm.c:
 * every program is a process of its own, and they take turns, step by step, in one run.
 * Medians, memory, and ratios: our step to the peer's, and to our own in float32. Then
 * where the time of our own step goes.
 *     bench_step [-m gpt2|llama] [-t THREADS] [-n STEPS] [-a MICROS] [-d DTYPE,...]
 *                [BATCHxTIME ...]
 *     MICROS: micro-batches per step (1; with more there are no peers).
 *     DTYPE: float32, bfloat16, float16, or ours alone: fp8, and fp8-uncached, which
 *     narrows weights at each use (default: all). torch is asked of
 *     $ACCEL_TORCH_PYTHON, or else of python3. llm.c, float32 of GPT-2 only, is built
 *     from the checkout $ACCEL_LLMC (git clone https://github.com/karpathy/llm.c; its
 *     Makefile's flags, no weights or data). A peer that takes more than 10 s of each
 *     core for a step is left out, as llm.c at 1x1024, or torch in 16 bits without an instruction.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/median.h"
#include "tests/bench/step/own.h"
#include "tests/bench/step/peer.h"

enum { MAX_PEERS = 12, MAX_STEPS = 1000, WARM_UP = 2, MOST_SECONDS = 10 };
enum side { OWN, TORCH, LLMC };

struct bench {
    const char *self, *python; /* python NULL: no torch */
    bool llmc;
    int threads, steps, micros;
    const char *dtype; /* NULL: all */
    bool llama;
};

struct row {
    struct peer peer;
    char name[24];
    const struct row *own;  /* NULL: this one is */
    const struct row *wide; /* the own one in float32 */
    struct step_time *step;
    struct step_time median, best;
    bool failed;
};

/* Median and best of one field of the steps. */
static void summarise(struct row *r, int n, size_t field)
{
    double v[MAX_STEPS];

    for (int i = 0; i < n; i++)
        v[i] = *(const double *)(const void *)((const char *)&r->step[i] + field);
    *(double *)(void *)((char *)&r->median + field) = median(v, n);
    *(double *)(void *)((char *)&r->best + field) = v[0];
}

static void start(const struct bench *b, struct row *r, enum side side,
                  const char *dtype, const char *batch, const char *time)
{
    static const char *const name[] = { "accel", "torch", "llm.c" };
    static const char *const first[] = { "--serve", STEP_TORCH, STEP_LLMC };
    const char *const program[] = { b->self, b->python, "sh" };
    char threads[16], micros[16];
    char *argv[10] = { 0 };
    int n = 0;

    snprintf(threads, sizeof(threads), "%d", b->threads);
    snprintf(micros, sizeof(micros), "%d", b->micros);
    snprintf(r->name, sizeof(r->name), "%s %s", name[side], dtype);
    argv[n++] = (char *)(uintptr_t)program[side];
    argv[n++] = (char *)(uintptr_t)first[side];
    argv[n++] = (char *)(uintptr_t)dtype;
    argv[n++] = (char *)(uintptr_t)batch;
    argv[n++] = (char *)(uintptr_t)time;
    argv[n++] = threads;
    argv[n++] = b->llama ? (char[]){ "llama" } : (char[]){ "gpt2" };
    if (side == OWN)
        argv[n++] = micros;
    r->failed = !peer_start(&r->peer, r->name, argv);
    r->step = calloc((size_t)b->steps, sizeof(*r->step));
    if (r->failed)
        printf("%s did not start\n", r->name);
    else
        printf("%-15s %s\n", r->name, r->peer.about);
    fflush(stdout);
}

/* The own program and its peers for one dtype. */
static void start_all(const struct bench *b, struct row *row, int *rows,
                      const char *dtype, const char *batch, const char *time)
{
    const struct row *own = &row[*rows];

    start(b, &row[(*rows)++], OWN, dtype, batch, time);
    if (b->micros > 1 || strncmp(dtype, "fp8", 3) == 0)
        return;
    if (b->python) {
        row[*rows].own = own;
        start(b, &row[(*rows)++], TORCH, dtype, batch, time);
    }
    if (b->llmc && !b->llama && strcmp(dtype, "float32") == 0) {
        row[*rows].own = own;
        start(b, &row[(*rows)++], LLMC, dtype, batch, time);
    }
}

static int cores_of(const struct bench *b)
{
    return b->threads > 0 ? b->threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static void run_steps(const struct bench *b, struct row *row, int rows)
{
    struct step_time unused;

    for (int i = -WARM_UP; i < b->steps; i++)
        for (int k = 0; k < rows; k++) {
            enum peer_answer answer;

            if (row[k].failed)
                continue;
            answer = peer_step(&row[k].peer, i < 0 ? &unused : &row[k].step[i],
                               (row[k].own ? MOST_SECONDS : 60 * MOST_SECONDS) *
                                   cores_of(b));
            row[k].failed = answer != PEER_OK;
            if (answer == PEER_SLOW)
                printf("%s takes more than %d s of each core for a step: left out\n",
                       row[k].name, MOST_SECONDS);
            fflush(stdout);
        }
}

/* How many times the step of `other`; blank without one. */
static void print_ratio(const struct row *r, const struct row *other)
{
    if (other && other != r && !other->failed)
        printf(" %7.3f", r->median.total / other->median.total);
    else
        printf(" %7s", "");
}

static void print_table(struct row *row, int rows, int tokens)
{
    printf("%-15s %8s %8s %8s %8s %8s %8s %8s %7s %7s %9s\n", "median, ms", "forward",
           "backward", "optim", "step", "best", "cpu", "tok/s", "own/it", "/ f32",
           "peak MiB");
    for (int k = 0; k < rows; k++) {
        struct row *r = &row[k];

        if (r->failed)
            continue;
        printf("%-15s %8.1f %8.1f %8.1f %8.1f %8.1f %8.0f %8.1f", r->peer.name,
               r->median.forward, r->median.backward, r->median.optimizer,
               r->median.total, r->best.total, r->median.cpu,
               tokens * 1e3 / r->median.total);
        if (r->own && !r->own->failed)
            printf(" %7.3f", r->own->median.total / r->median.total);
        else
            printf(" %7s", "");
        print_ratio(r, r->own ? NULL : r->wide);
        printf(" %9.0f\n", (double)peer_peak_kib(&r->peer) / 1024);
    }
}

/* Is it in the list of -d? */
static bool wants(const struct bench *b, const char *dtype)
{
    const size_t n = strlen(dtype);

    for (const char *word = b->dtype; word; word = strchr(word, ',')) {
        word += *word == ',';
        if (!strncmp(word, dtype, n) && (word[n] == ',' || !word[n]))
            return true;
    }
    return !b->dtype;
}

static void bench_case(const struct bench *b, const char *batch, const char *time)
{
    static const size_t field[] = { offsetof(struct step_time, forward),
                                    offsetof(struct step_time, backward),
                                    offsetof(struct step_time, optimizer),
                                    offsetof(struct step_time, total),
                                    offsetof(struct step_time, cpu) };
    static const char *const dtype[] = { "float32", "bfloat16", "float16", "fp8",
                                         "fp8-uncached" };
    struct row row[MAX_PEERS];
    int rows = 0;

    memset(row, 0, sizeof(row));
    printf("== %s, AdamW, batch %s, sequence %s, %d steps each in turn\n",
           b->llama ? "Llama 56M" : "GPT-2 124M", batch, time, b->steps);
    for (size_t d = 0; d < ACCEL_ARRAY_SIZE(dtype); d++) {
        if (!wants(b, dtype[d]))
            continue;
        /* float32 comes first, if it is wanted */
        row[rows].wide = wants(b, "float32") ? &row[0] : NULL;
        start_all(b, row, &rows, dtype[d], batch, time);
    }
    run_steps(b, row, rows);
    for (int k = 0; k < rows; k++)
        for (size_t f = 0; f < ACCEL_ARRAY_SIZE(field) && !row[k].failed; f++)
            summarise(&row[k], b->steps, field[f]);
    print_table(row, rows, b->micros * atoi(batch) * atoi(time));
    for (int k = 0; k < rows; k++) {
        if (!row[k].failed && !row[k].own) {
            printf("%s, its last step:\n", row[k].peer.name);
            peer_report(&row[k].peer);
        }
        peer_stop(&row[k].peer);
        free(row[k].step);
    }
}

static const char *find_torch(void)
{
    const char *python = getenv("ACCEL_TORCH_PYTHON");
    char command[4096];

    python = python ? python : "python3";
    snprintf(command, sizeof(command), "'%s' -c 'import torch' 2>/dev/null", python);
    if (system(command) == 0)
        return python;
    printf("no torch in %s (set ACCEL_TORCH_PYTHON): nothing to compare with\n",
           python);
    return NULL;
}

static bool find_llmc(void)
{
    const char *checkout = getenv("ACCEL_LLMC");

    if (checkout && checkout[0])
        return true;
    printf("llm.c not given (set ACCEL_LLMC to a checkout): nothing to compare with\n");
    return false;
}

static accel_dtype_t dtype_of(const char *word)
{
    return strcmp(word, "bfloat16") == 0 || strncmp(word, "fp8", 3) == 0 ? ACCEL_BF16
           : strcmp(word, "float16") == 0                                ? ACCEL_F16
                                                                         : ACCEL_F32;
}

int main(int argc, char **argv)
{
    static char self[] = "/proc/self/exe";
    struct bench b = { .self = self, .threads = 0, .steps = 9, .micros = 1 };
    char *usual[] = { "4x64", "4x256", "1x1024", NULL }, **cases = usual, *time;
    int c;

    if (argc == 8 && strcmp(argv[1], "--serve") == 0)
        return own_serve(
            &(struct own_options){ .llama = strcmp(argv[6], "llama") == 0,
                                   .compute = dtype_of(argv[2]),
                                   .fp8 = strncmp(argv[2], "fp8", 3) == 0,
                                   .uncached = strcmp(argv[2], "fp8-uncached") == 0,
                                   .batch = atoi(argv[3]),
                                   .time = atoi(argv[4]),
                                   .micros = atoi(argv[7]),
                                   .threads = atoi(argv[5]) });
    while ((c = getopt(argc, argv, "m:t:n:a:d:")) != -1) {
        if (c == 'm' && (!strcmp(optarg, "gpt2") || !strcmp(optarg, "llama")))
            b.llama = optarg[0] == 'l';
        else if (c == 't')
            b.threads = atoi(optarg);
        else if (c == 'n')
            b.steps = atoi(optarg);
        else if (c == 'a')
            b.micros = atoi(optarg);
        else if (c == 'd')
            b.dtype = optarg;
        else
            return 64;
    }
    if (b.steps < 1 || b.steps > MAX_STEPS || b.micros < 1)
        return 64;
    if (optind < argc)
        cases = argv + optind;
    b.python = find_torch();
    b.llmc = find_llmc();
    for (; *cases; cases++) {
        char batch[32];

        snprintf(batch, sizeof(batch), "%s", *cases);
        time = strchr(batch, 'x');
        if (!time)
            return 64;
        *time++ = '\0';
        bench_case(&b, batch, time);
    }
    return 0;
}
