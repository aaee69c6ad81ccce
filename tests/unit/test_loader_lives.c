/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders in the checkpoints of runs, as programs use them: stopped in the middle of an
 * epoch while batches are read ahead, and resumed on another number of ranks; opened
 * before accel_prepare, after it, or not at all; set back; refused in another order.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"
#include "tests/tap.h"
#include "tests/world/open_world.h"
#include "tests/world/run_folder.h"

enum { WIDTH = 4, SAMPLES = 41 };

/* What a life of a run does, and what it finds. Shared by its ranks. */
struct life {
    int ranks, batch;
    /* steps of this life; 0: to the end of the epoch of both loaders */
    int steps;
    /* without the loader of the stream */
    bool without;
    uint64_t seed;
    char dir[128], config[160];
    /* how often each sample was given to any rank */
    int numbered[SAMPLES], streamed[SAMPLES];
    float gain[WIDTH];
    accel_error_t err;
    char said[8192]; /* by rank 0 */
};

static struct life *life;
static char root[64] = "/tmp/accel-lives.XXXXXX";

/* ---- data and model -------------------------------------------------------------- */

static void write_sample(int64_t index, float *to)
{
    for (int i = 0; i < WIDTH; i++)
        to[i] = (float)(1 + index + (i ? (index * 7 + i) % 5 * 100 : 0));
}

static int64_t fails = -1;

static int lives_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    write_sample(index, dst[0]);
    return index == fails;
}

static int64_t at;

static int lives_next(void *user, void *const *dst)
{
    (void)user;
    write_sample(at, dst[0]);
    return at++ < SAMPLES;
}

static int lives_rewind(void *user, int64_t epoch)
{
    (void)user, (void)epoch;
    at = 0;
    return 0;
}

static accel_tensor_t *gain;

static accel_tensor_t *lives_forward(accel_module_t *m, accel_tensor_t *const *in,
                                     int n)
{
    (void)m, (void)n;
    return accel_mean(accel_rmsnorm(in[0], gain, 1e-5f), -1);
}

/* ---- one rank -------------------------------------------------------------------- */

struct program {
    accel_t *run;
    accel_dataset_t *numbers, *source;
    accel_loader_t *train, *stream;
    accel_job_t job;
};

static void keep_line(void *user, accel_log_level_t level, const char *line)
{
    size_t used = strlen(life->said);

    (void)user, (void)level;
    snprintf(life->said + used, sizeof(life->said) - used, "%s\n", line);
}

static accel_status_t open_stream(struct program *p, accel_error_t *err)
{
    const accel_loader_options_t o = { sizeof(o), .batch = 2, .prefetch = 3 };

    return accel_loader_new(&p->stream, p->run, "stream", p->source, &o, err);
}

/* One loader before accel_prepare, one after it. */
static accel_status_t program_open(struct program *p, const struct boot *b,
                                   accel_error_t *err)
{
    static const accel_class_t cls = { sizeof(cls), "Net", lives_forward, 0 };
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    static const accel_iterable_t source = { sizeof(source), lives_next, lives_rewind,
                                             NULL, 0 };
    static const accel_optimizer_t adamw = { sizeof(adamw), .lr = 0.01f };
    const int64_t width = WIDTH;
    const accel_options_t o = { sizeof(o), .config_file = life->config, .threads = 1,
                                .log = b->rank ? NULL : keep_line };
    const accel_loader_options_t train = { sizeof(train), .batch = life->batch,
                                           .seed = life->seed, .prefetch = 2 };

    *p = (struct program){ .job = { sizeof(p->job), .optimizer = &adamw, .steps = 1000,
                                    .batch = 1 } };
    p->job.out_dir = life->dir;
    if (accel_dataset_new(&p->numbers, SAMPLES, &field, 1, lives_fetch, NULL, 0, err) ||
        accel_dataset_iterable_new(&p->source, &source, &field, 1, err) ||
        accel_open(&p->run, &o, err))
        return err->code;
    p->job.model = accel_module_new(p->run, &cls, NULL, "");
    gain = accel_param(p->job.model, "gain", 1, &width,
                       (accel_init_t){ ACCEL_INIT_ONES, 0 });
    if (accel_loader_new(&p->train, p->run, "train", p->numbers, &train, err) ||
        accel_prepare(p->run, &p->job, err))
        return err->code;
    return life->without ? ACCEL_OK : open_stream(p, err);
}

static void program_close(struct program *p)
{
    accel_close(p->run, NULL);
    accel_dataset_close(p->numbers);
    accel_dataset_close(p->source);
}

/* The next batch of l; counts the samples that are this rank's own. */
static accel_status_t lives_take(accel_loader_t *l, int *seen, accel_tensor_t **batch,
                                 int *got_out, accel_error_t *err)
{
    float host[64 * WIDTH];
    const int64_t *dims;
    accel_status_t st = accel_loader_next(l, batch, 1, got_out, err);

    if (st || !*got_out)
        return st;
    accel_tensor_shape(*batch, &dims);
    st = accel_tensor_read(*batch, host, dims[0] * WIDTH, err);
    for (int i = 0; !st && i < accel_loader_real(l); i++)
        __atomic_fetch_add(&seen[(int)host[i * WIDTH] - 1], 1, __ATOMIC_RELAXED);
    return st;
}

/* A batch of the stream, which is only looked at, then a step of training. */
static accel_status_t lives_step(struct program *p, int *streaming, int *training,
                                 accel_error_t *err)
{
    accel_tensor_t *batch;
    accel_status_t st = ACCEL_OK;

    if (p->stream && *streaming) {
        accel_inference_mode(p->run, 1);
        st = lives_take(p->stream, life->streamed, &batch, streaming, err);
        accel_inference_mode(p->run, 0);
    }
    if (!st && *training)
        st = lives_take(p->train, life->numbered, &batch, training, err);
    if (!st && *training)
        st = accel_backward(p->run, accel_call(p->job.model, &batch, 1), err);
    return !st && *training ? accel_step(p->run, err) : st;
}

static int life_rank(struct boot *b, void *arg)
{
    accel_error_t err = { 0 };
    int streaming = !life->without, training = 1;
    struct program p;
    accel_status_t st = program_open(&p, b, &err);

    (void)arg;
    for (int i = 0; !st && (streaming || training) && (!life->steps || i < life->steps);
         i++)
        st = lives_step(&p, &streaming, &training, &err);
    st = st ? st : accel_param_read(p.run, "gain", 0, life->gain, WIDTH, &err);
    st = st ? st : accel_save(p.run, &err);
    program_close(&p);
    if (b->rank == 0)
        life->err = err;
    return st != ACCEL_OK;
}

/* ---- lives ----------------------------------------------------------------------- */

/* A new run of its own directory. */
static void begin(const char *name)
{
    static int number;

    *life = (struct life){ .seed = 3, .batch = 2 };
    snprintf(life->dir, sizeof(life->dir), "%s/%s%d", root, name, number++);
}

static int live(int ranks, int steps)
{
    FILE *f;

    life->ranks = ranks;
    life->steps = steps;
    life->said[0] = '\0';
    snprintf(life->config, sizeof(life->config), "%s/%d.yaml", root, ranks);
    f = fopen(life->config, "w");
    if (!f)
        return 1;
    fprintf(f,
            "distributed_type: %s\nuse_cpu: true\nmixed_precision: 'no'\n"
            "num_machines: 1\nnum_processes: %d\n",
            ranks == 1 ? "'NO'" : "MULTI_CPU", ranks);
    fclose(f);
    return open_world(ranks, 1, life_rank, NULL, HANG_S);
}

/* Samples that were not given `times` times. */
static int not_given(const int *seen, int times)
{
    int bad = 0;

    for (int i = 0; i < SAMPLES; i++)
        bad += seen[i] != times;
    return bad;
}

static void test_ranks(void)
{
    int bad = 0, cases = 0;

    for (int from = 1; from <= 3; from += 1 + TAP_SANITIZED)
        for (int to = 1; to <= 4; to += 3)
            for (int steps = 1; steps <= 3 - TAP_SANITIZED; steps += 2, cases++) {
                begin("ranks");
                bad += live(from, steps) != 0;
                life->batch = 3;
                bad += live(to, 1) != 0;
                bad += live(2, 0) != 0;
                bad += not_given(life->numbered, 1) + not_given(life->streamed, 1);
            }
    tap_is_int(bad, 0, "each sample once over three lives (%d cases)", cases);
}

/* The same number of ranks: the same bits. */
static void test_bits(void)
{
    float whole[WIDTH];

    begin("whole");
    tap_is_int(live(2, 6), 0, "six steps at once");
    memcpy(whole, life->gain, sizeof(whole));
    begin("parts");
    tap_ok(!live(2, 1) && !live(2, 4) && !live(2, 1), "one, four, one");
    tap_ok(memcmp(whole, life->gain, sizeof(whole)) == 0, "the same bits");
}

/* The place of a loader that a life does not open is there for the next one. */
static void test_waiting(void)
{
    begin("waiting");
    tap_ok(!live(2, 3), "a life with a stream");
    tap_ok(!strstr(life->said, "later checkpoints keep it"), "nobody waits");
    life->without = true;
    tap_ok(!live(1, 2) && !live(2, 1), "two lives without it");
    tap_ok(strstr(life->said,
                  "the place of loader 'stream', which this program has not "
                  "opened: later checkpoints keep it") != NULL,
           "who waits is named");
    life->without = false;
    tap_ok(!live(2, 0), "and one with it");
    tap_ok(!strstr(life->said, "later checkpoints keep it"), "nobody waits");
    tap_is_int(not_given(life->streamed, 1), 0, "each sample of the stream once");
    tap_is_int(not_given(life->numbered, 1), 0, "and of the others");
}

static void test_refused(void)
{
    begin("refused");
    tap_ok(!live(1, 2), "an order");
    life->seed = 4;
    tap_ok(live(1, 2) && life->err.code == ACCEL_EMISMATCH && life->err.message == 932,
           "another one: %s", life->err.text);
    life->seed = 3;
    tap_ok(!live(1, 2), "the first again");
}

/* ---- set back -------------------------------------------------------------------- */

/* The sample that l gives next, or -1. */
static int next_sample(accel_t *run, accel_loader_t *l)
{
    int seen[SAMPLES] = { 0 }, got = 0;
    accel_tensor_t *batch;

    accel_inference_mode(run, 1);
    if (lives_take(l, seen, &batch, &got, NULL) || !got)
        return -1;
    for (int i = 0; i < SAMPLES; i++)
        if (seen[i])
            return i;
    return -1;
}

static int back_rank(struct boot *b, void *arg)
{
    const accel_loader_options_t o = { sizeof(o), .batch = 1,
                                       .sampler = ACCEL_SAMPLER_SEQUENTIAL };
    accel_error_t err = { 0 };
    accel_loader_t *late = NULL, *other = NULL;
    struct program p;
    accel_status_t st = program_open(&p, b, &err);
    int bad = 0, first, second;

    (void)arg;
    next_sample(p.run, p.train);
    next_sample(p.run, p.stream);
    st = st ? st : accel_save_state(p.run, NULL, &err);
    first = next_sample(p.run, p.train);
    second = next_sample(p.run, p.stream);
    st = st ? st : accel_loader_new(&late, p.run, "late", p.numbers, &o, &err);
    bad += next_sample(p.run, late) != b->rank;
    accel_loader_close(p.stream);
    bad += next_sample(p.run, p.train) == first;
    st = st ? st : accel_load_state(p.run, NULL, &err);
    bad += next_sample(p.run, p.train) != first;
    bad += next_sample(p.run, late) != b->rank;
    st = st ? st : open_stream(&p, &err);
    bad += next_sample(p.run, p.stream) != second;
    /* a loader of the name that the checkpoint has, in another order */
    accel_loader_close(p.train);
    st = st ? st : accel_loader_new(&other, p.run, "train", p.numbers, &o, &err);
    bad += next_sample(p.run, other) != b->rank;
    bad += accel_load_state(p.run, NULL, &err) != ACCEL_EMISMATCH ||
           (b->rank == 0 && err.message != 932);
    bad += next_sample(p.run, other) != b->size + b->rank;
    if (st || bad)
        fprintf(stderr, "# rank %d: %d checks failed; %s\n", b->rank, bad, err.text);
    program_close(&p);
    return st || bad;
}

static void test_back(void)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        begin("back");
        tap_ok(!live(ranks, 1), "a life of %d ranks", ranks);
        tap_is_int(open_world(ranks, 1, back_rank, NULL, HANG_S), 0,
                   "loaders go back with the state, %d ranks", ranks);
    }
}

/* The last rank cannot have a sample of a batch that is only looked at: no save has the
 * place behind it. */
static int unsaved_rank(struct boot *b, void *arg)
{
    const accel_loader_options_t o = { sizeof(o), .batch = 1,
                                       .sampler = ACCEL_SAMPLER_SEQUENTIAL };
    accel_error_t err = { 0 };
    accel_loader_t *late = NULL;
    struct program p;
    accel_status_t st = program_open(&p, b, &err);
    int bad;

    st = st ? st : accel_loader_new(&late, p.run, "late", p.numbers, &o, &err);
    fails = 2 * b->size - 1;
    next_sample(p.run, late);
    next_sample(p.run, late);
    st = st             ? ACCEL_EBUG
         : *(bool *)arg ? accel_save(p.run, &err)
                        : accel_save_state(p.run, NULL, &err);
    bad = st != ACCEL_EIO || !strstr(err.text, "sample") || accel_more(p.run);
    if (bad)
        fprintf(stderr, "# rank %d: %d: %s\n", b->rank, st, err.text);
    program_close(&p);
    return bad;
}

static void test_unsaved(void)
{
    for (int i = 0; i < 2; i++) {
        bool save = i == 0;

        begin("unsaved");
        tap_ok(!live(3, 1), "a life");
        tap_is_int(open_world(3, 1, unsaved_rank, &save, HANG_S), 0,
                   "%s tells all of a loader that failed",
                   save ? "accel_save" : "accel_save_state");
    }
}

int main(void)
{
    life = fork_shared(sizeof(*life));
    run_folder_new(root);
    test_ranks();
    test_bits();
    test_waiting();
    test_refused();
    test_back();
    test_unsaved();
    run_folder_remove(root);
    return tap_done();
}
