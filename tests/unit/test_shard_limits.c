/* SPDX-License-Identifier: Apache-2.0
 *
 * What sharding refuses: units in another order, too many units at once and too large
 * models are errors that say so. And when it gathers and sums.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plan/plan.h"
#include "shard/shard_impl.h"
#include "tests/tap.h"
#include "tests/world/shard_world.h"

/* A model on the CPU, which is then sharded, with values and before its first
 * backward. */
struct rig {
    struct backend *be;
    struct comm *c;
    struct model m;
    struct shard *s;
    struct residency r;
};

static int rig_begin(struct rig *k, struct boot *b)
{
    *k = (struct rig){ .be = NULL };
    model_build(&k->m);
    CHECK(comm_open(&k->c, b, NULL, err));
    CHECK(backend_cpu_open(&k->be, 1, err));
    return 0;
}

static int rig_shard(struct rig *k, struct boot *b, struct shard_options o)
{
    o.backend = o.backend ? o.backend : k->be;
    CHECK(shard_open(&k->s, k->c, &o, &k->m.units, err));
    shard_init(k->s, 1);
    k->r = shard_residency(k->s);
    return 0;
}

static int rig_open(struct rig *k, struct boot *b, struct shard_options o)
{
    const int rc = rig_begin(k, b);

    return rc ? rc : rig_shard(k, b, o);
}

static void rig_close(struct rig *k)
{
    shard_close(k->s);
    backend_close(k->be);
    comm_close(k->c);
}

/* Rank 1 takes two blocks of the same size in the other order. */
static int disorder_main(struct boot *b, void *arg)
{
    const struct shard_options o = { .strategy = SHARD_FULL,
                                     PLAIN_ADAMW,
                                     .prefetch = PREFETCH_PRE };
    accel_error_t e = { 0 };
    struct rig k;
    int first = b->rank == 1 && arg ? 2 : 1, rc = rig_open(&k, b, o);

    if (rc)
        return rc;
    CHECK(shard_backward_begin(k.s, 1, err));
    if (use_unit(b, &k.m, &k.r, first, ACCEL_F32, 1, b->rank) ||
        use_unit(b, &k.m, &k.r, 3 - first, ACCEL_F32, 1, b->rank))
        return 1;
    CHECK(shard_backward_end(k.s, err));
    if (shard_reduce(k.s, 0, &e) != (arg ? ACCEL_EMISMATCH : ACCEL_OK))
        rc = 6;
    if (arg && (!strstr(e.text, "order") || !e.hint[0]))
        rc = 7;
    rig_close(&k);
    return rc;
}

/* One rank's gradient has an infinity: the norm shows it whatever it travels in. */
static int infinite_main(struct boot *b, void *arg)
{
    const struct shard_options o = { .strategy = SHARD_FULL,
                                     PLAIN_ADAMW,
                                     .precision = { .reduce = *(accel_dtype_t *)arg } };
    struct rig k;
    double sum[2];
    float *g;
    int rc = rig_open(&k, b, o);

    if (rc)
        return rc;
    for (int bad = 0; bad < 2; bad++) {
        CHECK(shard_backward_begin(k.s, 1, err));
        if (use_unit(b, &k.m, &k.r, 1, ACCEL_F32, 1, b->rank))
            return 1;
        CHECK(k.r.grad(k.r.user, 1, &g, err));
        if (bad && b->rank == 1)
            g[5] = INFINITY;
        CHECK(shard_backward_end(k.s, err));
        CHECK(shard_reduce(k.s, 0, err));
        CHECK(shard_grad_sumsq(k.s, 0, &sum[bad], err));
    }
    CHECK(comm_all_reduce(k.c, sum, 2, ACCEL_F64, COMM_SUM, err));
    rig_close(&k);
    return isfinite(sum[0]) && sum[0] > 0 && !isfinite(sum[1]) ? 0 : 6;
}

static int misuse_main(struct boot *b, void *arg)
{
    struct shard_options o = { .strategy = SHARD_FULL,
                               PLAIN_ADAMW,
                               .precision = { ACCEL_BF16, ACCEL_BF16, ACCEL_BF16, false,
                                              false } };
    struct unit large = { .name = "large", .elems = INT64_MAX / 16 };
    struct units none = { NULL, 0 }, huge = { &large, 1 };
    accel_error_t e = { 0 };
    struct residency *r;
    struct rig k;
    void *data[3];

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    o.backend = k.be;
    if (shard_open(&k.s, k.c, &o, &none, &e) != ACCEL_EINVAL || k.s)
        return 2;
    if (shard_open(&k.s, k.c, &o, &huge, &e) != ACCEL_EINVAL ||
        !strstr(e.text, "large"))
        return 3;
    if (rig_shard(&k, b, o))
        return 1;
    r = &k.r;
    CHECK(r->want(r->user, 0, &data[0], err));
    CHECK(r->want(r->user, 0, &data[1], err));
    if (data[0] != data[1])
        return 4;
    CHECK(r->want(r->user, 3, &data[1], err));
    if (r->want(r->user, 2, &data[2], &e) != ACCEL_EBUG)
        return 5;
    r->done(r->user, 0);
    if (r->want(r->user, 2, &data[2], &e) != ACCEL_EBUG)
        return 6;
    r->done(r->user, 0);
    CHECK(r->want(r->user, 2, &data[2], err));
    if (r->want(r->user, UNITS, &data[2], &e) != ACCEL_EBUG ||
        r->want(r->user, -1, &data[2], &e) != ACCEL_EBUG)
        return 7;
    if (shard_backward_begin(k.s, 0, &e) != ACCEL_EINVAL)
        return 8;
    rig_close(&k);
    shard_close(NULL);
    return 0;
}

/* A unit in use stays, though the other slot was used later. */
static int pinned_main(struct boot *b, void *arg)
{
    const struct shard_options o = { .strategy = SHARD_FULL, PLAIN_ADAMW };
    float before[TOTAL];
    struct rig k;
    void *data, *other;
    size_t bytes;
    int rc = rig_open(&k, b, o);

    (void)arg;
    if (rc)
        return rc;
    bytes = (size_t)k.m.unit[1].elems * sizeof(float);
    CHECK(k.r.want(k.r.user, 0, &other, err));
    CHECK(k.r.want(k.r.user, 1, &data, err));
    memcpy(before, data, bytes);
    k.r.done(k.r.user, 0);
    CHECK(k.r.want(k.r.user, 0, &other, err));
    k.r.done(k.r.user, 0);
    CHECK(k.r.want(k.r.user, 2, &other, err));
    if (other == data || memcmp(data, before, bytes) != 0)
        return 2;
    CHECK(k.r.want(k.r.user, 1, &other, err));
    if (other != data)
        return 3;
    rig_close(&k);
    return 0;
}

static bool is_gathered(const struct shard *s, int unit)
{
    for (int i = 0; i < s->gather.slots; i++)
        if (s->gather.slot[i].unit == unit)
            return true;
    return false;
}

/* A block in two dtypes, then another one: while the first is at work, both units of
 * the second are gathered, each when the unit of its dtype is wanted first. */
static int ahead_main(struct boot *b, void *arg)
{
    static const int order[] = { 0, 1, 0, 1, 2, 3 };
    const struct shard_options o = { .strategy = SHARD_FULL,
                                     .prefetch = PREFETCH_PRE,
                                     PLAIN_ADAMW };
    struct rig k;
    void *data;

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    for (int u = 1; u < UNITS; u += 2)
        k.m.unit[u].types = (struct plan_types){ true, ACCEL_BF16, ACCEL_BF16 };
    if (rig_shard(&k, b, o))
        return 1;
    CHECK(shard_backward_begin(k.s, 1, err));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(order); i++)
        if (use_unit(b, &k.m, &k.r, order[i], ACCEL_F32, 1, b->rank))
            return 2;
    CHECK(shard_backward_end(k.s, err));
    shard_loaded(k.s);
    CHECK(shard_backward_begin(k.s, 1, err));
    CHECK(k.r.want(k.r.user, 0, &data, err));
    k.r.done(k.r.user, 0);
    if (!is_gathered(k.s, 2) || is_gathered(k.s, 1) || is_gathered(k.s, 3))
        return 3;
    CHECK(k.r.want(k.r.user, 1, &data, err));
    k.r.done(k.r.user, 1);
    if (!is_gathered(k.s, 0) || !is_gathered(k.s, 2) || !is_gathered(k.s, 3))
        return 4;
    CHECK(shard_backward_end(k.s, err));
    rig_close(&k);
    return 0;
}

/* A gradient beside the parameters, between them and behind, is gone after the step. */
static int gap_main(struct boot *b, void *arg)
{
    const struct shard_options o = { .strategy = SHARD_FULL, PLAIN_ADAMW };
    struct rig k;
    double sum[2];
    float *g;
    int rc = rig_open(&k, b, o);

    (void)arg;
    if (rc)
        return rc;
    for (int step = 0; step < 2; step++) {
        CHECK(shard_backward_begin(k.s, 1, err));
        if (use_unit(b, &k.m, &k.r, 1, ACCEL_F32, 1, b->rank))
            return 1;
        CHECK(k.r.grad(k.r.user, 1, &g, err));
        for (int64_t i = 0; i < plan_padded_elems(k.m.unit[1].elems, b->size); i++)
            g[i] = step ? 0.0f : 1.0f;
        CHECK(shard_backward_end(k.s, err));
        CHECK(shard_reduce(k.s, 0, err));
        CHECK(shard_grad_sumsq(k.s, 0, &sum[step], err));
        CHECK(shard_update(k.s, 0, 0.01f, step + 1, 1.0f, err));
    }
    rig_close(&k);
    return sum[0] > 0 && sum[1] == 0 ? 0 : 6;
}

/* A unit that is all frozen has no part in the norm; half of another has none
 * either. */
static int frozen_main(struct boot *b, void *arg)
{
    const struct shard_options o = { .strategy = SHARD_FULL, PLAIN_ADAMW };
    const int64_t kept = 64;
    accel_ckpt_box_t *box;
    size_t boxes;
    struct rig k;
    double sum;
    float *g;

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    for (int j = 0; j < k.m.unit[1].param_count; j++)
        k.m.list[1][j]->needs_grad = false;
    k.m.unit[1].frozen = k.m.unit[1].elems;
    k.m.unit[2].frozen = k.m.unit[2].elems - kept;
    if (rig_shard(&k, b, o))
        return 1;
    CHECK(shard_backward_begin(k.s, 1, err));
    CHECK(k.r.grad(k.r.user, 2, &g, err));
    for (int64_t i = 0; i < k.m.unit[2].elems; i++)
        g[i] = 1;
    CHECK(shard_backward_end(k.s, err));
    CHECK(shard_reduce(k.s, 0, err));
    CHECK(shard_grad_sumsq(k.s, 0, &sum, err));
    CHECK(comm_all_reduce(k.c, &sum, 1, ACCEL_F64, COMM_SUM, err));
    if (k.r.grad(k.r.user, 1, &g, NULL) != ACCEL_EBUG)
        return 5;
    CHECK(shard_boxes(k.s, false, &box, &boxes, err));
    for (size_t i = 0; i < boxes; i++)
        for (int j = 0; j < k.m.unit[1].param_count; j++)
            if (!strncmp(box[i].name, "optim/", 6) &&
                strstr(box[i].name, k.m.name[1][j]))
                return 7; /* moments of what is not trained */
    free(box);
    rig_close(&k);
    return fabs(sum - (double)kept) < 1e-9 ? 0 : 6;
}

/* ---- a device that writes home late ---------------------------------------------- */

enum { MANY = 64 };

/* The CPU, but for copies to the host's memory, which come when somebody waits for them
 * or reads what they write on the device's own queue. */
static struct {
    struct backend be, *real;
    const char *home[MANY];
    size_t bytes[MANY], late_bytes[MANY];
    void *to[MANY], *kept[MANY];
    int homes, late;
} device;

static bool at_home(const void *p)
{
    for (int i = 0; i < device.homes; i++)
        if ((const char *)p >= device.home[i] &&
            (const char *)p < device.home[i] + device.bytes[i])
            return true;
    return false;
}

static void arrive(void)
{
    for (int i = 0; i < device.late; i++) {
        memcpy(device.to[i], device.kept[i], device.late_bytes[i]);
        free(device.kept[i]);
    }
    device.late = 0;
}

static void late_copy(const struct backend *be, void *dst, const void *src,
                      size_t bytes)
{
    (void)be;
    if (at_home(src) || device.late == MANY)
        arrive();
    if (!at_home(dst)) {
        memcpy(dst, src, bytes);
        return;
    }
    device.kept[device.late] = malloc(bytes + 1);
    memcpy(device.kept[device.late], src, bytes);
    device.to[device.late] = dst;
    device.late_bytes[device.late++] = bytes;
}

static accel_status_t late_sync(const struct backend *be, accel_error_t *err)
{
    (void)be;
    arrive();
    return device.real->sync(device.real, err);
}

static void *late_host_alloc(const struct backend *be, size_t bytes)
{
    void *p = device.homes < MANY ? device.real->host_alloc(device.real, bytes) : NULL;

    (void)be;
    device.home[device.homes] = p;
    device.bytes[device.homes++] = bytes;
    return p;
}

static void count_wrong(void *user, const char *name, float *g, int64_t first,
                        int64_t count)
{
    const struct model *m = ((void **)user)[0];
    int64_t *wrong = ((void **)user)[1];
    bool mine = false;

    (void)first;
    for (int j = 0; j < m->unit[1].param_count; j++)
        mine = mine || !strcmp(name, m->name[1][j]);
    for (int64_t i = 0; i < count; i++)
        *wrong += g[i] != (mine ? 1.0f : 0.0f);
}

/* Copies of offloaded shards are summed when the gradients have come home. */
static int late_main(struct boot *b, void *arg)
{
    const struct job job = { .world = 4, .nodes = 2, .strategy = SHARD_HYBRID };
    struct shard_options o = { .strategy = SHARD_HYBRID, PLAIN_ADAMW };
    int64_t wrong = 0;
    struct backend *home;
    struct rig k;
    float *g;

    (void)arg;
    if (rig_begin(&k, b) || open_groups(b, k.c, &job, &o))
        return 1;
    CHECK(backend_cpu_open(&home, 1, err));
    device.real = k.be;
    device.be = *device.real;
    device.be.copy = late_copy;
    device.be.sync = late_sync;
    device.be.host_alloc = late_host_alloc;
    o.backend = &device.be;
    o.home = home;
    if (rig_shard(&k, b, o))
        return 1;
    for (int micro = 0; micro < 2; micro++) {
        CHECK(shard_backward_begin(k.s, 2, err));
        CHECK(k.r.grad(k.r.user, 1, &g, err));
        for (int64_t i = 0; i < k.m.unit[1].elems; i++)
            g[i] = 1;
        CHECK(shard_backward_end(k.s, err));
        if (micro == 1)
            CHECK(shard_reduce(k.s, 0, err));
    }
    CHECK(shard_each_gradient(k.s, 0, count_wrong, (void *[]){ &k.m, &wrong }, err));
    shard_close(k.s);
    k.s = NULL;
    backend_close(home);
    close_groups(&o);
    rig_close(&k);
    return wrong ? 6 : 0;
}

static accel_status_t no_moments(const struct backend *be, enum backend_memory kind,
                                 size_t bytes, void **out, accel_error_t *err)
{
    return kind == MEMORY_MOMENTS ? accel_fail_nomem(err, "moments", bytes)
                                  : device.real->alloc(be, kind, bytes, out, err);
}

/* One rank alone has no memory: no other goes on without it. */
static int alone_main(struct boot *b, void *arg)
{
    struct shard_options o = { .strategy = SHARD_FULL, PLAIN_ADAMW };
    accel_error_t e = { 0 };
    accel_status_t st;
    struct rig k;

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    device.real = k.be;
    device.be = *device.real;
    if (b->rank == 1)
        device.be.alloc = no_moments;
    o.backend = &device.be;
    st = shard_open(&k.s, k.c, &o, &k.m.units, &e);
    if (st != ACCEL_ENOMEM || k.s)
        return 2;
    rig_close(&k);
    return (strstr(e.text, "another rank") != NULL) == (b->rank == 0) ? 0 : 3;
}

/* Initial values that are not drawn. */
static int init_main(struct boot *b, void *arg)
{
    static const struct {
        accel_init_t init;
        float want;
    } c[] = {
        { { ACCEL_INIT_ZEROS, 3 }, 0 },
        { { ACCEL_INIT_ONES, 3 }, 1 },
        { { ACCEL_INIT_CONSTANT, -2.5f }, -2.5f },
    };
    const struct shard_options o = { .strategy = SHARD_FULL, PLAIN_ADAMW };
    struct rig k;

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        const accel_tensor_t *p = k.m.list[1][0];
        void *data;

        k.m.list[1][0]->init = c[i].init;
        if (rig_shard(&k, b, o))
            return 1;
        CHECK(k.r.want(k.r.user, 1, &data, err));
        for (int64_t e = 0; e < p->elems; e++)
            if (((float *)data)[p->param->unit_offset + e] != c[i].want)
                return 10 + (int)i;
        shard_close(k.s);
        k.s = NULL;
    }
    rig_close(&k);
    return 0;
}

/* Types that parameters and gradients cannot have. */
static int types_main(struct boot *b, void *arg)
{
    static const struct {
        accel_dtype_t parameters, reduce;
        bool good;
    } cases[] = {
        { ACCEL_F32, ACCEL_F32, true },     { ACCEL_BF16, ACCEL_F16, true },
        { ACCEL_F32, ACCEL_F8E4M3, true },  { ACCEL_F16, ACCEL_F16, true },
        { ACCEL_F8E5M2, ACCEL_F32, false }, { ACCEL_F64, ACCEL_F32, false },
        { ACCEL_F32, ACCEL_F64, false },    { ACCEL_BF16, ACCEL_I32, false },
    };
    struct rig k;

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        const struct shard_options o = { .strategy = SHARD_FULL,
                                         PLAIN_ADAMW,
                                         .precision = { .parameters =
                                                            cases[i].parameters,
                                                        .reduce = cases[i].reduce },
                                         .backend = k.be };
        accel_error_t e = { 0 };
        struct shard *s = NULL;
        accel_status_t st = shard_open(&s, k.c, &o, &k.m.units, &e);

        if ((st == ACCEL_OK) != cases[i].good || (s != NULL) != cases[i].good)
            return 10 + (int)i;
        shard_close(s);
    }
    rig_close(&k);
    return 0;
}

#ifndef __SANITIZE_ADDRESS__
static int no_memory_main(struct boot *b, void *arg)
{
    struct shard_options o = { .strategy = SHARD_FULL, PLAIN_ADAMW };
    struct unit large = { .name = "large", .elems = (int64_t)1 << 46 };
    struct units huge = { &large, 1 };
    accel_error_t e = { 0 };
    struct rig k;

    (void)arg;
    if (rig_begin(&k, b))
        return 1;
    o.backend = k.be;
    if (shard_open(&k.s, k.c, &o, &huge, &e) != ACCEL_ENOMEM || k.s ||
        !strstr(e.text, "moments"))
        return 2;
    rig_close(&k);
    return 0;
}
#endif
/* A parameter at 16 to 26 of its unit, and ranges that touch it. */
static void test_ranges(void)
{
    static const struct {
        int64_t first, count, begin, end; /* begin == end: nothing of it */
    } c[] = {
        { 0, 16, 0, 0 },   { 0, 17, 0, 1 },  { 26, 4, 0, 0 }, { 25, 4, 9, 10 },
        { 16, 10, 0, 10 }, { 0, 99, 0, 10 }, { 20, 2, 4, 6 }, { 20, 0, 0, 0 },
    };
    struct param at_16 = { .unit_offset = 16 };
    const accel_tensor_t p = { .elems = 10, .param = &at_16 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(c); i++) {
        int64_t b = 0, e = 0;
        bool any = shard_param_range(&p, c[i].first, c[i].count, &b, &e);

        tap_ok(any == (c[i].begin < c[i].end) &&
                   (!any || (b == c[i].begin && e == c[i].end)),
               "%lld from %lld: [%lld, %lld)", (long long)c[i].count,
               (long long)c[i].first, (long long)b, (long long)e);
    }
}

static void test_infinite(void)
{
    for (int t = ACCEL_F16; t <= ACCEL_F8E5M2; t++) {
        accel_dtype_t type = (accel_dtype_t)t;

        tap_is_int(fork_world(2, infinite_main, &type, 240), 0,
                   "an infinite gradient that travels in %s shows in the norm",
                   accel_dtype_name(type));
    }
}

int main(void)
{
    static struct model m;

    test_infinite();
    tap_is_int(fork_world(2, disorder_main, NULL, 240), 0, "the same order passes");
    tap_is_int(fork_world(2, disorder_main, &m, 240), 0,
               "another order of equal units is an error on all ranks");
    test_ranges();
    tap_is_int(fork_world(2, misuse_main, NULL, 240), 0, "misuse is refused");
    tap_is_int(fork_world(2, pinned_main, NULL, 240), 0,
               "a unit in use is not evicted");
    tap_is_int(fork_world(2, ahead_main, NULL, 240), 0,
               "the next unit of each dtype is gathered ahead");
    tap_is_int(fork_world(3, gap_main, NULL, 240), 0, "no gradient stays in a gap");
    for (int w = 1; w <= 3; w++)
        tap_is_int(fork_world(w, frozen_main, NULL, 240), 0,
                   "what is frozen is not in the norm, world %d", w);
    tap_is_int(fork_world_nodes(4, 2, late_main, NULL, 240, NULL), 0,
               "copies are summed when the gradients have come home");
    tap_is_int(fork_world(2, alone_main, NULL, 240), 0,
               "one rank out of memory is an error on all");
    tap_is_int(fork_world(2, init_main, NULL, 240), 0, "zeros, ones and constants");
    tap_is_int(fork_world(2, types_main, NULL, 240), 0, "other types are refused");
#ifdef __SANITIZE_ADDRESS__
    tap_skip(1, "the sanitizer's allocator aborts where malloc fails");
#else
    tap_is_int(fork_world(2, no_memory_main, NULL, 240), 0,
               "out of memory names what was to be allocated");
#endif
    return tap_done();
}
