/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation with GPT-2 124M, one sequence, against the rate at which the same cores
 * read memory, measured between the tokens' rounds in the same process. A token reads
 * all weights but the table of positions, and the cache of keys and values. By wall
 * clock and by CPU time, which other programs on the same cores disturb less.
 *     bench_generate [-t THREADS] [-r ROUNDS] [-n TOKENS] [-d float32 | bfloat16]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "accel.h"
#include "numbers/bf16.h"
#include "tests/bench/median.h"

enum { LAYERS = 12, WIDTH = 768, VOCAB = 50257, CONTEXT = 1024, MOST_ROUNDS = 64 };
enum { LANES = 64, PIECE = 16384 };

static const int limit[] = { 64, 256, 512, 1024 }; /* buckets of positions */
#define BUCKETS ((int)(sizeof(limit) / sizeof(*limit)))

struct bench {
    int threads, rounds, tokens;
    float *memory;
    size_t floats;
};

struct mark {
    double wall, cpu;
};

struct sample {
    double wall, cpu; /* bytes per second */
};

struct marks {
    int count;
    struct mark at[CONTEXT + 1];
};

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct mark now(void)
{
    return (struct mark){ seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID) };
}

/* CPU time is that of all threads: as if they had run beside each other. */
static struct sample rate(const struct bench *b, double bytes, struct mark from,
                          struct mark to)
{
    return (struct sample){ bytes / (to.wall - from.wall),
                            bytes / (to.cpu - from.cpu) * b->threads };
}

/* As many sums as no addition waits for another: memory is all there is to wait for. */
ACCEL_MULTIVERSION
static float sum_piece(const float *x)
{
    float lane[LANES] = { 0 };

    for (int i = 0; i < PIECE; i += LANES)
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            lane[l] += x[i + l];
    for (int l = 1; l < LANES; l++)
        lane[0] += lane[l];
    return lane[0];
}

static struct sample read_memory(const struct bench *b)
{
    struct mark start = now();
    float sum = 0;

#pragma omp parallel for num_threads(b->threads) reduction(+ : sum)
    for (size_t i = 0; i < b->floats; i += PIECE)
        sum += sum_piece(b->memory + i);
    if (sum != 0)
        abort();
    return rate(b, (double)b->floats * sizeof(float), start, now());
}

static int take_token(void *user, int32_t token)
{
    struct marks *m = user;

    (void)token;
    m->at[m->count++] = now();
    return 0;
}

/* What the tokens at positions [from, to) read. */
static double bytes_read(int from, int to, int element)
{
    double block = 12.0 * WIDTH * WIDTH + 13.0 * WIDTH;
    double weights = LAYERS * block + (double)VOCAB * WIDTH + 2.0 * WIDTH, sum = 0;

    for (int t = from; t < to; t++)
        sum += (weights + 2.0 * LAYERS * WIDTH * (t + 1)) * element;
    return sum;
}

static struct sample middle_of(const struct sample *s, int n)
{
    double wall[MOST_ROUNDS], cpu[MOST_ROUNDS];

    for (int i = 0; i < n; i++) {
        wall[i] = s[i].wall;
        cpu[i] = s[i].cpu;
    }
    return (struct sample){ median(wall, n), median(cpu, n) };
}

static void print_table(const struct bench *b, const char *dtype, int element,
                        struct sample *read, struct sample (*made)[MOST_ROUNDS])
{
    struct sample base = middle_of(read, b->rounds);

    printf("== %s, %d threads, %d rounds: a plain read %.2f GB/s (CPU time: %.2f)\n",
           dtype, b->threads, b->rounds, base.wall / 1e9, base.cpu / 1e9);
    printf("%-12s %10s %10s %10s %10s\n", "positions", "tokens/s", "GB/s", "ratio",
           "CPU ratio");
    for (int k = 0, from = 0; k < BUCKETS && from < b->tokens; from = limit[k++]) {
        int to = limit[k] < b->tokens ? limit[k] : b->tokens;
        struct sample s = middle_of(made[k], b->rounds);

        printf("%5d..%-5d %10.1f %10.2f %10.2f %10.2f\n", from + 1, to,
               s.wall / bytes_read(from, to, element) * (to - from), s.wall / 1e9,
               s.wall / base.wall, s.cpu / base.cpu);
    }
}

static accel_status_t rounds(const struct bench *b, accel_module_t *model,
                             const char *dtype, int element, accel_error_t *err)
{
    static struct sample read[MOST_ROUNDS], made[BUCKETS][MOST_ROUNDS];
    static int32_t out[CONTEXT];
    static struct marks m;
    const accel_sampling_t how = { sizeof(how), .token = take_token, .user = &m };
    const int32_t prompt = 0;

    for (int r = -1; r < b->rounds; r++) { /* the first one plans the memory */
        int kept = r < 0 ? 0 : r;
        accel_status_t st;

        read[kept] = read_memory(b);
        m.count = 1;
        m.at[0] = now();
        st = accel_generate(model, &prompt, 1, out, b->tokens, &how, err);
        if (st != ACCEL_OK)
            return st;
        for (int k = 0, from = 0; k < BUCKETS && from < b->tokens; from = limit[k++]) {
            int to = limit[k] < b->tokens ? limit[k] : b->tokens;

            made[k][kept] =
                rate(b, bytes_read(from, to, element), m.at[from], m.at[to]);
        }
    }
    print_table(b, dtype, element, read, made);
    return ACCEL_OK;
}

static accel_status_t bench_dtype(const struct bench *b, const char *dtype, int element,
                                  const char *config, const char *out)
{
    accel_options_t options = { sizeof(options), .run_name = "bench",
                                .threads = b->threads, .config_file = config };
    accel_job_t job = { sizeof(job), .steps = 1, .batch = 1, .out_dir = out };
    accel_error_t err = { 0 };
    accel_t *run = NULL;
    accel_status_t st = accel_open(&run, &options, &err);
    char text[1536];

    if (st == ACCEL_OK) {
        job.model = accel_model_open(run, "gpt2", NULL);
        st = accel_prepare(run, &job, &err);
    }
    if (st == ACCEL_OK)
        st = rounds(b, job.model, dtype, element, &err);
    if (st != ACCEL_OK) {
        accel_error_format(&err, text, sizeof(text));
        fprintf(stderr, "%s\n", text);
    }
    accel_close(run, NULL);
    return st;
}

int main(int argc, char **argv)
{
    static const char *const precision[] = { "no", "bf16" };
    static const char *const name[] = { "float32", "bfloat16" };
    struct bench b = { .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                       .rounds = 5,
                       .tokens = CONTEXT,
                       .floats = (size_t)64 << 20 };
    char dir[] = "/tmp/accel-bench.XXXXXX", path[64], command[96];
    const char *only = NULL;
    accel_status_t st = ACCEL_OK;
    int c;

    while ((c = getopt(argc, argv, "t:r:n:d:")) != -1)
        if (c == 'd')
            only = optarg;
        else
            *(c == 't'   ? &b.threads
              : c == 'r' ? &b.rounds
                         : &b.tokens) = c == '?' ? 0 : atoi(optarg);
    if (b.threads < 1 || b.rounds < 1 || b.rounds > MOST_ROUNDS || b.tokens < 1 ||
        b.tokens > CONTEXT || !mkdtemp(dir))
        return 64;
    b.memory = aligned_alloc((size_t)2 << 20, b.floats * sizeof(float));
    if (!b.memory)
        return 71;
    madvise(b.memory, b.floats * sizeof(float), MADV_HUGEPAGE);
#pragma omp parallel for num_threads(b.threads)
    for (size_t i = 0; i < b.floats; i++)
        b.memory[i] = 0;
    for (int k = 0; k < 2 && st == ACCEL_OK; k++) {
        FILE *f;

        if (only && strcmp(only, name[k]) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s.yaml", dir, name[k]);
        f = fopen(path, "w");
        if (!f)
            return 73;
        fprintf(f, "distributed_type: 'NO'\nmixed_precision: '%s'\nuse_cpu: true\n",
                precision[k]);
        fclose(f);
        st = bench_dtype(&b, name[k], k ? 2 : 4, path, dir);
    }
    free(b.memory);
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    return system(command) == 0 ? accel_exit_code(st) : 1;
}
