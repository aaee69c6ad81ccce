/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharding on worlds of 1 to 4 forked ranks with a small synthetic model: every strategy
 * and world size trains to the same parameters, repeats to the bit, tiles its tensors, and
 * uses the memory the plan foretold.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/bf16.h"
#include "common/rng.h"
#include "plan/plan.h"
#include "shard/shard.h"
#include "tests/tap.h"
#include "tests/unit/fork_world.h"

#define UNITS   5
#define PER     4     /* parameters per unit, at most */
#define TOTAL   16384 /* room for all elements of the model, unit after unit */
#define SAMPLES 12    /* micro-batches per step over all ranks */
#define STEPS   5

/* ---- the model ------------------------------------------------------------------------- */

struct model {
    accel_tensor_t tensor[UNITS][PER], *list[UNITS][PER];
    struct nn_unit unit[UNITS];
    struct nn_units units;
    char name[UNITS][PER][32];
    int64_t base[UNITS]; /* where a unit starts in arrays of TOTAL */
};

static const struct {
    const char *name;
    int ndim;
    int64_t dim[3];
    accel_init_t init;
} root_params[] = { { "wte", 2, { 37, 17 }, { ACCEL_INIT_NORMAL, 0.5f } },
                    { "wpe", 2, { 9, 17 }, { ACCEL_INIT_UNIFORM, 0.5f } },
                    { "lnf.gain", 1, { 17 }, { ACCEL_INIT_ONES, 0 } } },
  block_params[] = { { "weight", 2, { 23, 17 }, { ACCEL_INIT_NORMAL, 0.5f } },
                     { "bias", 1, { 23 }, { ACCEL_INIT_ZEROS, 0 } },
                     { "cube", 3, { 3, 5, 7 }, { ACCEL_INIT_NORMAL, 0.5f } },
                     { "scalar", 1, { 1 }, { ACCEL_INIT_ONES, 0 } } };

static void add_param(struct model *m, int u, const char *name, int ndim,
                      const int64_t *dim, accel_init_t init)
{
    struct nn_unit *unit = &m->unit[u];
    int j = unit->param_count++;
    accel_tensor_t *p = &m->tensor[u][j];

    if (u == 0)
        snprintf(m->name[u][j], sizeof(m->name[u][j]), "%s", name);
    else
        snprintf(m->name[u][j], sizeof(m->name[u][j]), "h.%d.%s", u - 1, name);
    *p = (accel_tensor_t){ .dtype = ACCEL_F32,
                           .ndim = ndim,
                           .elems = 1,
                           .unit = u,
                           .name = m->name[u][j],
                           .init = init };
    for (int d = 0; d < ndim; d++) {
        p->dim[d] = dim[d];
        p->elems *= dim[d];
    }
    p->unit_offset = unit->elems;
    unit->elems = (unit->elems + p->elems + 15) / 16 * 16;
    m->list[u][j] = p;
    unit->param = m->list[u];
}

static void build(struct model *m)
{
    int64_t at = 0;

    memset(m, 0, sizeof(*m));
    m->units = (struct nn_units){ m->unit, UNITS };
    for (int u = 0; u < UNITS; u++) {
        m->unit[u].name = u ? "h" : "";
        for (int j = 0; u == 0 && j < 3; j++)
            add_param(m, u, root_params[j].name, root_params[j].ndim,
                      root_params[j].dim, root_params[j].init);
        for (int j = 0; u > 0 && j < 4; j++)
            add_param(m, u, block_params[j].name, block_params[j].ndim,
                      block_params[j].dim, block_params[j].init);
        m->base[u] = at;
        at += m->unit[u].elems;
    }
}

/* ---- a world's run --------------------------------------------------------------------- */

struct result {
    float full[3][TOTAL]; /* parameters, first and second moments, without padding */
    int hits[3][TOTAL];
    double sumsq[4];
    struct shard_memory memory[4];
};

struct job {
    int world, steps;
    enum sharding_strategy strategy;
    enum backward_prefetch prefetch;
    accel_dtype_t compute;
    const struct result *load; /* start from these instead of initial values */
    struct result *out;        /* shared with the parent */
};

#define CHECK(call)                                                                    \
    do {                                                                               \
        accel_error_t err_ = { 0 }, *err = &err_;                                      \
        if (call) {                                                                    \
            fprintf(stderr, "# rank %d, line %d: %s\n", b->rank, __LINE__, err_.text); \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

static float noise(int step, int sample, int64_t i)
{
    uint32_t w[4];

    rng_block(11, (uint64_t)step << 32 | (uint32_t)sample, (uint64_t)i, w);
    return (float)(2 * rng_unit(w[0]) - 1);
}

/* Uses a unit as a layer would: reads its parameters, adds a gradient that depends on
 * them (in backward). */
static int use_unit(struct boot *b, const struct model *m, struct residency *r, int u,
                    accel_dtype_t compute, int step, int sample)
{
    float *g = NULL;
    void *data;

    CHECK(r->want(r->user, u, &data, err));
    if (sample >= 0)
        CHECK(r->grad(r->user, u, &g, err));
    for (int j = 0; g && j < m->unit[u].param_count; j++) {
        const accel_tensor_t *p = m->unit[u].param[j];

        for (int64_t i = p->unit_offset; i < p->unit_offset + p->elems; i++) {
            float x = compute == ACCEL_BF16 ? bf16_to_f32(((bf16_t *)data)[i])
                                            : ((float *)data)[i];

            g[i] += 0.3f * x + noise(step, sample, m->base[u] + i);
        }
    }
    r->done(r->user, u);
    return 0;
}

/* Forward root, blocks, root; backward the other way round. */
static int micro_batch(struct boot *b, const struct model *m, struct shard *s,
                       const struct job *job, int step, int a, int accumulate)
{
    struct residency r = shard_residency(s);
    int sample = a * job->world + b->rank;

    for (int u = 0; u <= UNITS; u++) {
        if (use_unit(b, m, &r, u % UNITS, job->compute, step, -1))
            return 1;
    }
    CHECK(shard_backward_begin(s, accumulate, err));
    for (int u = UNITS; u >= 0; u--) {
        if (use_unit(b, m, &r, u % UNITS, job->compute, step, sample))
            return 1;
    }
    CHECK(shard_backward_end(s, a == accumulate - 1, err));
    return 0;
}

/* Index of the first element of a stored tensor in full[kind]; -1: unknown name. */
static int64_t locate(const struct model *m, const char *name, int *kind,
                      const accel_tensor_t **param)
{
    char want[64];
    static const char *const form[3] = { "model/%s", "optim/%s/exp_avg",
                                         "optim/%s/exp_avg_sq" };

    for (int u = 0; u < UNITS; u++) {
        for (int j = 0; j < m->unit[u].param_count; j++) {
            *param = m->unit[u].param[j];
            for (*kind = 0; *kind < 3; (*kind)++) {
                snprintf(want, sizeof(want), form[*kind], (*param)->name);
                if (strcmp(want, name) == 0)
                    return m->base[u] + (*param)->unit_offset;
            }
        }
    }
    return -1;
}

/* Copies every element of the boxes to (or from) its place in `full`. */
static int copy_boxes(struct boot *b, const struct model *m, struct shard *s, bool load,
                      float full[3][TOTAL], int hits[3][TOTAL])
{
    accel_ckpt_box_t *box;
    size_t count;

    CHECK(shard_boxes(s, load, &box, &count, err));
    for (size_t k = 0; k < count; k++) {
        const accel_tensor_t *p;
        int kind;
        int64_t base = locate(m, box[k].name, &kind, &p), n = 1;
        float *data = box[k].data;

        if (base < 0 || box[k].ndim != p->ndim || box[k].dtype != ACCEL_F32)
            return 2;
        for (int d = 0; d < p->ndim; d++) {
            n *= box[k].shape[d];
            if (box[k].global_shape[d] != p->dim[d])
                return 3;
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t rest = i, at = 0, stride = 1;

            for (int d = p->ndim - 1; d >= 0; d--) {
                at += (box[k].offset[d] + rest % box[k].shape[d]) * stride;
                rest /= box[k].shape[d];
                stride *= p->dim[d];
            }
            if (load) {
                data[i] = full[kind][base + at];
            } else {
                full[kind][base + at] = data[i];
                hits[kind][base + at]++;
            }
        }
    }
    free(box);
    return 0;
}

/* What a rank sees gathered must be what the shards hold, narrowed to the compute type. */
static int check_gathered(struct boot *b, const struct model *m, struct shard *s,
                          const struct job *job, struct comm *c)
{
    struct residency r = shard_residency(s);
    int wrong = 0;

    CHECK(comm_barrier(c, err));
    for (int u = 0; u < UNITS; u++) {
        void *data;

        CHECK(r.want(r.user, u, &data, err));
        for (int64_t i = 0; i < m->unit[u].elems; i++) {
            float x = job->out->full[0][m->base[u] + i];

            wrong += job->compute == ACCEL_F32 ? ((float *)data)[i] != x
                                               : ((bf16_t *)data)[i] != f32_to_bf16(x);
        }
        r.done(r.user, u);
    }
    return wrong ? 4 : 0;
}

static int train(struct boot *b, const struct model *m, struct shard *s,
                 const struct job *job)
{
    const accel_adamw_t o = { .weight_decay = 0.1f };
    int accumulate = SAMPLES / job->world;

    for (int t = 1; t <= job->steps; t++) {
        for (int a = 0; a < accumulate; a++) {
            int rc = micro_batch(b, m, s, job, t, a, accumulate);

            if (rc)
                return rc;
        }
        job->out->sumsq[b->rank] = shard_grad_sumsq(s);
        shard_adamw(s, &o, 0.01f, t, 0.5f);
    }
    return 0;
}

static int rank_main(struct boot *b, void *arg)
{
    struct job *job = arg;
    struct shard_options o = { .strategy = job->strategy,
                               .prefetch = job->prefetch,
                               .compute = job->compute };
    struct model m;
    struct shard *s;
    struct comm *c;
    int rc = 0;

    build(&m);
    CHECK(comm_open(&c, b, NULL, err));
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_memory(s, &job->out->memory[b->rank]);
    shard_init(s, 42);
    if (job->load) {
        rc = copy_boxes(b, &m, s, true, (float(*)[TOTAL])job->load->full, NULL);
        shard_loaded(s);
    }
    if (!rc)
        rc = train(b, &m, s, job);
    if (!rc)
        rc = copy_boxes(b, &m, s, false, job->out->full, job->out->hits);
    if (!rc)
        rc = check_gathered(b, &m, s, job, c);
    shard_close(s);
    comm_close(c);
    return rc;
}

static struct result *shared_result(void)
{
    void *p = mmap(NULL, sizeof(struct result), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static struct result *run(struct job job)
{
    int rc;

    job.out = shared_result();
    rc = fork_world(job.world, rank_main, &job, 60);
    if (rc)
        tap_ok(false, "world %d, %s: status %d", job.world,
               job.strategy == SHARD_FULL ? "FULL_SHARD" : "NO_SHARD", rc);
    return job.out;
}

/* ---- tests ----------------------------------------------------------------------------- */

static bool same_bits(const struct result *a, const struct result *b)
{
    return memcmp(a->full, b->full, sizeof(a->full)) == 0;
}

static double worst(const struct result *a, const struct result *b)
{
    double d = 0;

    for (int i = 0; i < TOTAL; i++)
        d = fmax(d, fabs((double)a->full[0][i] - b->full[0][i]));
    return d;
}

static double mean(const struct result *a, const struct result *b,
                   const struct model *m)
{
    int64_t n = m->base[UNITS - 1] + m->unit[UNITS - 1].elems;
    double d = 0;

    for (int64_t i = 0; i < n; i++)
        d += fabs((double)a->full[0][i] - b->full[0][i]);
    return d / (double)n;
}

static bool tiles(const struct result *r, const struct model *m)
{
    for (int u = 0; u < UNITS; u++) {
        for (int j = 0; j < m->unit[u].param_count; j++) {
            const accel_tensor_t *p = m->unit[u].param[j];

            for (int64_t i = 0; i < 3 * p->elems; i++) {
                if (r->hits[i / p->elems][m->base[u] + p->unit_offset + i % p->elems] !=
                    1)
                    return false;
            }
        }
    }
    return true;
}

static const char *name_of(enum sharding_strategy s)
{
    return s == SHARD_FULL ? "FULL_SHARD" : "NO_SHARD";
}

static void test_init(struct result *drawn, const struct model *m)
{
    double mean = 0, square = 0;
    const accel_tensor_t *wte = m->unit[0].param[0];
    int n = (int)wte->elems, outside = 0;

    for (int i = 0; i < n; i++) {
        mean += drawn->full[0][i] / n;
        square += (double)drawn->full[0][i] * drawn->full[0][i] / n;
    }
    for (int64_t i = 0; i < m->unit[0].param[1]->elems; i++)
        outside += fabsf(drawn->full[0][m->unit[0].param[1]->unit_offset + i]) > 0.5f;
    tap_ok(fabs(mean) < 0.08 && fabs(sqrt(square) - 0.5) < 0.05,
           "normal values: mean %.3f, deviation %.3f", mean, sqrt(square));
    tap_is_int(outside, 0, "uniform values stay inside");
    tap_ok(memcmp(drawn->full[0] + m->base[1], drawn->full[0] + m->base[2],
                  23 * 17 * sizeof(float)) != 0,
           "two tensors of one shape differ");
    for (int w = 1; w <= 4; w++) {
        for (int s = SHARD_FULL; s <= SHARD_NONE; s++) {
            struct job job = { .world = w, .strategy = s };
            struct result *r = run(job);

            tap_ok(same_bits(r, drawn) && tiles(r, m),
                   "initial bits, world %d, %s; boxes tile every tensor", w,
                   name_of(s));
            munmap(r, sizeof(*r));
        }
    }
}

static void test_training(const struct result *one, const struct model *m)
{
    for (int w = 1; w <= 4; w++) {
        for (int s = SHARD_FULL; s <= SHARD_NONE; s++) {
            struct job job = { .world = w, .steps = STEPS, .strategy = s };
            struct result *r = run(job), *again = run(job);
            double sum = 0;

            for (int i = 0; i < w; i++)
                sum += r->sumsq[i];
            tap_ok(worst(r, one) < 1e-6 && tiles(r, m),
                   "world %d, %s trains as one rank: %.2g", w, name_of(s),
                   worst(r, one));
            tap_is_close(sum, one->sumsq[0], 1e-5, "and has its gradient norm");
            tap_ok(same_bits(r, again), "and repeats to the bit");
            munmap(r, sizeof(*r));
            munmap(again, sizeof(*again));
        }
    }
}

static void test_bf16(const struct result *one, const struct model *m)
{
    for (int w = 1; w <= 4; w++) {
        for (int s = SHARD_FULL; s <= SHARD_NONE; s++) {
            struct job job = {
                .world = w, .steps = STEPS, .strategy = s, .compute = ACCEL_BF16
            };
            struct result *r = run(job), *again = run(job);

            /* A gradient near zero may change its sign by rounding, and Adam then goes
             * lr = 0.01 the other way: bounded for one element, rare among all. */
            tap_ok(worst(r, one) > 0 && worst(r, one) <= 2 * 0.01 * STEPS &&
                       mean(r, one, m) < 5e-4 && same_bits(r, again),
                   "bf16, world %d, %s: near (%.2g, mean %.2g), repeats to the bit", w,
                   name_of(s), worst(r, one), mean(r, one, m));
            munmap(r, sizeof(*r));
            munmap(again, sizeof(*again));
        }
    }
}

static void test_prefetch(void)
{
    for (int t = ACCEL_F32; t <= ACCEL_BF16; t++) {
        struct job job = { .world = 3,
                           .steps = 3,
                           .strategy = SHARD_FULL,
                           .prefetch = PREFETCH_NONE,
                           .compute = t };
        struct result *none = run(job), *pre, *post;

        job.prefetch = PREFETCH_PRE;
        pre = run(job);
        job.prefetch = PREFETCH_POST;
        post = run(job);
        tap_ok(same_bits(none, pre) && same_bits(none, post),
               "BACKWARD_PRE, BACKWARD_POST and none give the same bits (%s)",
               accel_dtype_name(t));
        munmap(none, sizeof(*none));
        munmap(pre, sizeof(*pre));
        munmap(post, sizeof(*post));
    }
}

static void test_reload(void)
{
    struct job save = { .world = 4, .steps = 2, .strategy = SHARD_FULL };
    struct result *saved = run(save);

    for (int w = 1; w <= 4; w++) {
        for (int s = SHARD_FULL; s <= SHARD_NONE; s++) {
            struct job load = { .world = w, .strategy = s, .load = saved };
            struct result *r = run(load);

            tap_ok(same_bits(r, saved), "4 ranks' state on %d, %s: equal bits", w,
                   name_of(s));
            munmap(r, sizeof(*r));
        }
    }
    munmap(saved, sizeof(*saved));
}

/* ---- memory and errors ----------------------------------------------------------------- */

struct sizes {
    int64_t elems[7];
    int units;
    bool differs;
};

static int memory_main(struct boot *b, void *arg)
{
    struct sizes *z = arg;
    struct nn_unit unit[7] = { { 0 } };
    struct nn_units units = { unit, z->units };
    struct comm *c;

    for (int u = 0; u < z->units; u++)
        unit[u] = (struct nn_unit){ .name = "u", .elems = z->elems[u] };
    CHECK(comm_open(&c, b, NULL, err));
    for (int k = 0; k < 4; k++) {
        struct shard_options o = { .strategy = k & 1 ? SHARD_FULL : SHARD_NONE,
                                   .compute = k & 2 ? ACCEL_BF16 : ACCEL_F32 };
        struct config config = { .distributed_type = DIST_FSDP,
                                 .sharding_strategy = o.strategy,
                                 .mixed_precision =
                                     k & 2 ? PRECISION_BF16 : PRECISION_NO };
        struct plan_input in = { .config = &config,
                                 .world = b->size,
                                 .nodes = 1,
                                 .accumulate = 1,
                                 .unit_elems = z->elems,
                                 .units = z->units };
        struct shard_memory m;
        struct shard *s;
        struct plan p;

        CHECK(shard_open(&s, c, &o, &units, err));
        shard_memory(s, &m);
        plan_compute(&in, &p);
        if ((int64_t)m.master != p.param_bytes ||
            (int64_t)m.moments != p.moment_bytes ||
            (int64_t)m.gradient_shard != p.gradient_bytes ||
            (int64_t)m.gather_slots != p.gather_bytes ||
            (int64_t)m.reduce_buffer != p.reduce_bytes)
            return 5;
        shard_close(s);
    }
    comm_close(c);
    return 0;
}

static void test_memory(void)
{
    static struct sizes z[] = {
        { { 1 }, 1, false },
        { { 1000, 16 }, 2, false },
        { { 16, 1000, 1000 }, 3, false },
        { { 4096, 512, 512, 512, 8192, 96, 32 }, 7, false },
        { { 640, 656, 672, 688 }, 4, false },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(z); i++) {
        for (int w = 1; w <= 4; w++)
            tap_is_int(fork_world(w, memory_main, &z[i], 60), 0,
                       "memory is the plan's: %d units, world %d, 4 modes", z[i].units,
                       w);
    }
}

/* Rank 1 takes two blocks of the same size in the other order. */
static int disorder_main(struct boot *b, void *arg)
{
    struct shard_options o = { .strategy = SHARD_FULL, .prefetch = PREFETCH_PRE };
    accel_error_t e = { 0 };
    struct residency r;
    struct model m;
    struct shard *s;
    struct comm *c;
    int first = b->rank == 1 && arg ? 2 : 1, rc = 0;

    build(&m);
    CHECK(comm_open(&c, b, NULL, err));
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_init(s, 1);
    r = shard_residency(s);
    CHECK(shard_backward_begin(s, 1, err));
    if (use_unit(b, &m, &r, first, ACCEL_F32, 1, b->rank) ||
        use_unit(b, &m, &r, 3 - first, ACCEL_F32, 1, b->rank))
        return 1;
    if (shard_backward_end(s, true, &e) != (arg ? ACCEL_EMISMATCH : ACCEL_OK))
        rc = 6;
    if (arg && (!strstr(e.text, "order") || !e.hint[0]))
        rc = 7;
    shard_close(s);
    comm_close(c);
    return rc;
}

static int misuse_main(struct boot *b, void *arg)
{
    struct shard_options o = { .strategy = SHARD_FULL, .compute = ACCEL_BF16 };
    struct nn_unit large = { .name = "large", .elems = INT64_MAX / 16 };
    struct nn_units none = { NULL, 0 }, huge = { &large, 1 };
    accel_error_t e = { 0 };
    struct residency r;
    struct model m;
    struct shard *s = NULL;
    struct comm *c;
    void *data[3];

    (void)arg;
    build(&m);
    CHECK(comm_open(&c, b, NULL, err));
    if (shard_open(&s, c, &o, &none, &e) != ACCEL_EINVAL || s)
        return 2;
    if (shard_open(&s, c, &o, &huge, &e) != ACCEL_EINVAL || !strstr(e.text, "large"))
        return 3;
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_init(s, 1);
    r = shard_residency(s);
    CHECK(r.want(r.user, 0, &data[0], err));
    CHECK(r.want(r.user, 0, &data[1], err));
    if (data[0] != data[1])
        return 4;
    CHECK(r.want(r.user, 3, &data[1], err));
    if (r.want(r.user, 2, &data[2], &e) != ACCEL_EBUG)
        return 5;
    r.done(r.user, 0);
    if (r.want(r.user, 2, &data[2], &e) != ACCEL_EBUG)
        return 6;
    r.done(r.user, 0);
    CHECK(r.want(r.user, 2, &data[2], err));
    if (r.want(r.user, UNITS, &data[2], &e) != ACCEL_EBUG ||
        r.want(r.user, -1, &data[2], &e) != ACCEL_EBUG)
        return 7;
    if (shard_backward_begin(s, 0, &e) != ACCEL_EINVAL)
        return 8;
    shard_close(s);
    shard_close(NULL);
    comm_close(c);
    return 0;
}

#ifndef __SANITIZE_ADDRESS__
static int no_memory_main(struct boot *b, void *arg)
{
    struct shard_options o = { .strategy = SHARD_FULL };
    struct nn_unit large = { .name = "large", .elems = (int64_t)1 << 46 };
    struct nn_units huge = { &large, 1 };
    accel_error_t e = { 0 };
    struct shard *s = NULL;
    struct comm *c;

    (void)arg;
    CHECK(comm_open(&c, b, NULL, err));
    if (shard_open(&s, c, &o, &huge, &e) != ACCEL_ENOMEM || s ||
        !strstr(e.text, "moments"))
        return 2;
    comm_close(c);
    return 0;
}
#endif

int main(void)
{
    static struct model m;
    struct job init = { .world = 1, .strategy = SHARD_NONE };
    struct job base = { .world = 1, .steps = STEPS, .strategy = SHARD_NONE };
    struct result *drawn, *one;

    build(&m);
    drawn = run(init);
    test_init(drawn, &m);
    one = run(base);
    tap_ok(worst(one, drawn) > 0.01, "training moves the parameters");
    test_training(one, &m);
    test_bf16(one, &m);
    test_prefetch();
    test_reload();
    test_memory();
    tap_is_int(fork_world(2, disorder_main, NULL, 60), 0, "the same order passes");
    tap_is_int(fork_world(2, disorder_main, &m, 60), 0,
               "another order of equal units is an error on all ranks");
    tap_is_int(fork_world(1, misuse_main, NULL, 60), 0, "misuse is refused");
#ifdef __SANITIZE_ADDRESS__
    tap_skip(1, "the sanitizer's allocator aborts where malloc fails");
#else
    tap_is_int(fork_world(2, no_memory_main, NULL, 60), 0,
               "out of memory names what was to be allocated");
#endif
    return tap_done();
}
