/* SPDX-License-Identifier: Apache-2.0
 *
 * The shards on a device whose queues run at any speed: whatever the strategy,
 * prefetch, accumulation and world, events alone put every read behind its write and
 * every write behind its last reader; and each single wait is needed, so that this test
 * notices one that is missing.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "optim/optim.h"
#include "precision/fp8.h"
#include "tests/tap.h"
#include "tests/unit/queue_record.h"
#include "tests/world/shard_world.h"

#define STEPS 3

struct plan_of_world {
    struct job job;
    int accumulate;
    bool nested;        /* the root unit is in use around the blocks */
    int save_after;     /* a checkpoint follows this step; 0: none does */
    bool scaled;        /* weights and gradients rest with scales */
    bool coded;         /* matrices are gathered in fp8 */
    _Atomic int *waits; /* of all ranks; shared with the parent */
};

static const struct fp8_recipe recipe = {
    .current = true, .type = { ACCEL_F8E4M3, ACCEL_F8E4M3, ACCEL_F8E5M2 }
};
static struct fp8_linear linear = { .recipe = &recipe };

static struct queue_record *rec;

static void collective(char what, const void *in, size_t in_bytes, void *out,
                       size_t out_bytes)
{
    queue_record_kernel(rec, what == 'g' ? "all-gather" : "reduction", in, in_bytes,
                        out, out_bytes);
}

/* Blocks of 32 numbers begin with parameters, and matrices can be codes. */
static void even_out(struct model *m, bool coded)
{
    for (int u = 0; u < UNITS; u++) {
        m->unit[u].elems = 0;
        for (int j = 0; j < m->unit[u].param_count; j++) {
            accel_tensor_t *p = &m->tensor[u][j];

            if (p->ndim == 2) {
                p->dim[0] = 32;
                p->dim[1] = 16;
                p->elems = 512;
                p->param->fp8 = coded && u > 0 ? &linear : NULL;
            }
            p->param->unit_offset = m->unit[u].elems;
            m->unit[u].elems += (p->elems + 31) / 32 * 32;
        }
    }
}

/* What products read beside codes; returns the bytes that codes save. */
static size_t read_scales(const struct model *m, int u)
{
    size_t saved = 0;

    for (int j = 0; j < m->unit[u].param_count; j++)
        if (m->tensor[u][j].param->coded) {
            queue_record_kernel(rec, "scale", m->tensor[u][j].param->coded_inverse,
                                sizeof(float), NULL, 0);
            saved += (size_t)m->tensor[u][j].elems;
        }
    return saved;
}

/* As a layer does: kernels that read the parameters, and kernels that add to the
 * gradient. */
static int use(struct boot *b, const struct model *m, struct residency *r, int u,
               const struct job *job, bool backward)
{
    size_t n = (size_t)m->unit[u].elems, bytes;
    float *g = NULL;
    void *data;

    CHECK(r->want(r->user, u, &data, err));
    bytes = n * accel_dtype_bytes(job->compute) - read_scales(m, u);
    queue_record_kernel(rec, "layer", data, bytes, NULL, 0);
    if (backward) {
        CHECK(r->grad(r->user, u, &g, err));
        queue_record_kernel(rec, "layer's gradient", data, bytes, g, n * sizeof(*g));
    }
    r->done(r->user, u);
    return 0;
}

static int pass(struct boot *b, const struct model *m, struct residency *r,
                const struct plan_of_world *p, bool backward, int skipped)
{
    void *data;
    int rc = 0;

    if (p->nested)
        CHECK(r->want(r->user, 0, &data, err));
    for (int i = 0; i <= UNITS && !rc; i++) {
        int u = (backward ? UNITS - i : i) % UNITS;

        if (i != skipped && !(p->nested && backward && i == 0))
            rc = use(b, m, r, u, &p->job, backward);
    }
    if (p->nested)
        r->done(r->user, 0);
    return rc;
}

/* As a checkpoint does: copies of all boxes, which the next update overwrites. */
static int copy_boxes(struct boot *b, struct shard *s, const struct backend *be)
{
    accel_ckpt_box_t *box;
    size_t count;

    CHECK(shard_boxes(s, false, &box, &count, err));
    shard_read_begin(s);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = accel_dtype_bytes(box[i].dtype);
        char *to;

        for (int d = 0; d < box[i].ndim; d++)
            bytes *= (size_t)box[i].shape[d];
        to = malloc(bytes + 1);
        be->copy(be, to, box[i].data, bytes);
        free(to);
    }
    shard_read_end(s);
    free(box);
    return 0;
}

/* Later backwards leave a unit out, in the last step the last one, so that one that was
 * fetched ahead is never read. */
static int train(struct boot *b, const struct model *m, struct shard *s,
                 const struct plan_of_world *p)
{
    struct residency r = shard_residency(s);
    double sum;

    for (int t = 1; t <= STEPS; t++) {
        for (int a = 0; a < p->accumulate; a++) {
            if (pass(b, m, &r, p, false, -1))
                return 1;
            CHECK(shard_backward_begin(s, p->accumulate, err));
            if (pass(b, m, &r, p, true, t == 1 ? -1 : t == 2 ? UNITS - 1 : UNITS))
                return 1;
            CHECK(shard_backward_end(s, err));
            if (a == p->accumulate - 1)
                CHECK(shard_reduce(s, 0, err));
        }
        CHECK(shard_grad_sumsq(s, 0, &sum, err));
        CHECK(shard_update(s, 0, 0.01f, t, 1.0f, err));
        if (t == p->save_after && copy_boxes(b, s, shard_home(s)))
            return 1;
    }
    return pass(b, m, &r, p, false, -1);
}

/* 0: ordered, and every wait needed. */
static int judge(struct boot *b)
{
    char why[160] = "";
    int unneeded = 0;

    if (!queue_record_ordered(rec, -1, why)) {
        fprintf(stderr, "# rank %d: %s\n", b->rank, why);
        return 2;
    }
    for (int w = 0; w < queue_record_waits(rec); w++)
        if (queue_record_ordered(rec, w, why)) {
            fprintf(stderr, "# rank %d: not needed: %s\n", b->rank,
                    queue_record_wait_text(rec, w));
            unneeded++;
        }
    return unneeded ? 3 : 0;
}

static int rank_main(struct boot *b, void *arg)
{
    const struct plan_of_world *p = arg;
    const struct job *job = &p->job;
    const struct shard_optim adamw = { .settings =
                                           optim_defaults((accel_optimizer_t){ 0 }) };
    struct shard_options o = { .strategy = job->strategy,
                               .prefetch = job->prefetch,
                               .precision = { job->compute, job->compute, job->reduce,
                                              job->narrow_copies, false },
                               .optim = &adamw,
                               .optims = 1 };
    struct backend *be;
    struct model m;
    struct shard *s;
    struct comm *c;
    int rc;

    if (p->scaled) {
        o.precision.masters = ACCEL_F16;
        o.precision.gradients = ACCEL_F8E4M3;
    }
    o.precision.coded = p->coded;
    model_build(&m);
    if (p->scaled || p->coded)
        even_out(&m, p->coded);
    CHECK(comm_open(&c, b, NULL, err));
    if (open_groups(b, c, job, &o))
        return 1;
    CHECK(backend_cpu_open(&be, 1, err));
    rec = queue_record_open(be, &o.backend);
    shard_collective = collective;
    CHECK(shard_open(&s, c, &o, &m.units, err));
    shard_init(s, 42);
    rc = train(b, &m, s, p);
    if (!rc)
        rc = judge(b);
    *p->waits += queue_record_waits(rec);
    shard_close(s);
    queue_record_close(rec);
    backend_close(be);
    close_groups(&o);
    comm_close(c);
    return rc;
}

static void test_world(struct plan_of_world *p)
{
    static const char *const prefetch[] = { "none", "PRE", "POST" };
    const struct job *j = &p->job;
    int rc;

    *p->waits = 0;
    rc = fork_world_nodes(j->world, j->nodes, rank_main, p, 240, NULL);
    tap_is_int(
        rc, 0,
        "%s, prefetch %s, %d micro-batches, %d ranks, %s%s%s%s: ordered by %d waits, "
        "all of them needed",
        config_strategy_name(j->strategy), prefetch[j->prefetch], p->accumulate,
        j->world, accel_dtype_name(j->compute), p->nested ? ", root around all" : "",
        p->scaled  ? ", with scales"
        : p->coded ? ", gathered in fp8"
                   : "",
        p->save_after ? ", a save" : "", *p->waits);
    if (j->world > 1)
        tap_ok(*p->waits > 0, "and there are some");
}

/* With the sanitizer, which finds nothing in an order, every fifth world: 5 is prime to the
 * period of each property, so that each of their values comes. */
#ifdef __SANITIZE_ADDRESS__
#define STRIDE 5
#else
#define STRIDE 1
#endif

int main(void)
{
    struct plan_of_world p = { .waits = fork_shared(sizeof(*p.waits)) };

    for (int k = 0; k < 2 * 3 * 2 * 3 * 4; k += STRIDE) {
        p.job.strategy = k % 2 ? SHARD_NONE : SHARD_FULL;
        p.job.prefetch = (enum backward_prefetch)(k / 2 % 3);
        p.accumulate = 1 + k / 6 % 2;
        p.job.world = 1 + k / 12 % 3;
        p.job.nodes = 1;
        p.nested = k / 36 % 2;
        p.job.compute = p.job.reduce = k / 72 ? ACCEL_BF16 : ACCEL_F32;
        p.save_after = k % 5 ? 0 : STEPS - 1;
        test_world(&p);
    }
    for (int k = 0; k < 3 * 2 * 3; k += STRIDE) {
        static const enum sharding_strategy others[] = { SHARD_GRAD_OP, SHARD_HYBRID,
                                                         SHARD_HYBRID_ZERO2 };

        p.job.strategy = others[k % 3];
        p.accumulate = 1 + k / 3 % 2;
        p.job.prefetch = (enum backward_prefetch)(k / 6);
        p.job.world = 4;
        p.job.nodes = 2;
        p.nested = k / 3 % 2;
        if (k >= 9)
            p.job.reduce = ACCEL_F8E4M3;
        test_world(&p);
    }
    for (int k = 0; k < 12; k += STRIDE) { /* forms with scales, and codes */
        p = (struct plan_of_world){ .accumulate = 1 + k / 2 % 2,
                                    .save_after = k % 3 ? 0 : STEPS - 1,
                                    .scaled = k % 4 != 1,
                                    .coded = k % 4 > 0,
                                    .waits = p.waits };
        p.job = (struct job){ .world = 1 + k / 4,
                              .nodes = 1,
                              .strategy = k % 2 ? SHARD_GRAD_OP : SHARD_FULL,
                              .prefetch = (enum backward_prefetch)(k % 3),
                              .compute = ACCEL_BF16,
                              .reduce = ACCEL_BF16 };
        test_world(&p);
    }
    p.scaled = p.coded = false;
    p.job.strategy = SHARD_NONE;
    p.job.narrow_copies = true;
    for (int k = 0; k < 4; k++) { /* whole copies on a narrow wire */
        p.job.world = 2 + k % 2;
        p.job.nodes = 1;
        p.job.compute = k / 2 ? ACCEL_BF16 : ACCEL_F32;
        p.job.reduce = k / 2 ? ACCEL_F16 : ACCEL_BF16;
        test_world(&p);
    }
    return tap_done();
}
