/* SPDX-License-Identifier: Apache-2.0
 *
 * Two-dimensional convolution on the CPU: columns of a few hundred places at a time,
 * one product on one thread each, bias and activation while the result is in cache.
 * The whole matrix of columns never exists.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/conv.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

/* Consecutive places of one output row, seen through one tap (u, v): they read row iy
 * of the plane, columns ix + i * stride, i < length. Both may lie in the padding. */
struct run {
    int64_t iy, ix, length;
};

/* The run that starts at `place`, at most `left` places long. */
static struct run run_at(const struct conv *p, int64_t place, int64_t left, int64_t u,
                         int64_t v)
{
    int64_t oy = place / p->out_w, ox = place % p->out_w;

    return (struct run){ .iy = oy * p->stride - p->pad + u,
                         .ix = ox * p->stride - p->pad + v,
                         .length = p->out_w - ox < left ? p->out_w - ox : left };
}

/* Copies a run, zeros in the padding. */
VM_INLINE void take_run(float *to, const void *plane, const struct conv *p,
                        struct run r, const accel_dtype_t t)
{
    bool inside = r.iy >= 0 && r.iy < p->height;

    for (int64_t i = 0; i < r.length; i++) {
        int64_t ix = r.ix + i * p->stride;

        to[i] = inside && ix >= 0 && ix < p->width
                    ? vm_load(plane, r.iy * p->width + ix, t)
                    : 0.0f;
    }
}

/* Writes cols[depth][n] for the places [first, first + n) of an image. */
static void columns(float *cols, const struct conv *p, const void *image, int64_t first,
                    int64_t n)
{
    /* row k of cols is tap k % taps of channel k / taps, as in weight [outputs, depth]
     */
    int64_t taps = p->kernel_h * p->kernel_w;

    for (int64_t k = 0; k < p->channels * taps; k++) {
        const void *plane = vm_at(image, k / taps * p->height * p->width, p->type);
        struct run r;

        for (int64_t j = 0; j < n; j += r.length) {
            r = run_at(p, first + j, n - j, k % taps / p->kernel_w, k % p->kernel_w);
            VM_BY_TYPE(p->type, take_run, cols + k * n + j, plane, p, r);
        }
    }
}

/* The reverse: adds columns of `count` channels into their planes. */
static void scatter(float *planes, const struct conv *p, const float *cols,
                    int64_t count, int64_t first, int64_t n)
{
    int64_t taps = p->kernel_h * p->kernel_w;

    for (int64_t k = 0; k < count * taps; k++) {
        float *plane = planes + k / taps * p->height * p->width;
        struct run r;

        for (int64_t j = 0; j < n; j += r.length) {
            r = run_at(p, first + j, n - j, k % taps / p->kernel_w, k % p->kernel_w);
            if (r.iy < 0 || r.iy >= p->height)
                continue;
            for (int64_t i = 0; i < r.length; i++) {
                int64_t ix = r.ix + i * p->stride;

                if (ix >= 0 && ix < p->width)
                    plane[r.iy * p->width + ix] += cols[k * n + j + i];
            }
        }
    }
}

/* The weights as float32: in place, or widened into the shared scratch, which moves
 * on. */
static const float *weights_of(const struct conv *p, const struct conv_plan *c,
                               const void *weight, float **shared)
{
    float *room = *shared;

    if (p->type == ACCEL_F32)
        return weight;
    cpu_load_row(room, weight, p->type, c->weights);
    *shared += c->weights;
    return room;
}

/* c [m, n] = op(a) op(b) on the calling thread; `same`: cpu_gemm_alone's same_a. */
static void conv_product(const struct backend *be, bool trans_a, bool trans_b,
                         int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                         const float *b, int64_t ldb, bool add, float *c, int64_t ldc,
                         bool same)
{
    const struct gemm p = { .trans_a = trans_a,
                            .trans_b = trans_b,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .lda = lda,
                            .b = b,
                            .ldb = ldb,
                            .add = add,
                            .c = c,
                            .ldc = ldc };

    cpu_gemm_alone(be, &p, same);
}

/* out = act(sum + bias), pre = sum + bias; one output channel, n places. */
static void finish_row(void *out, void *pre, accel_dtype_t type, const float *sum,
                       float bias, int64_t n, accel_activation_t act)
{
    for (int64_t i = 0; i < n; i += CPU_PIECE) {
        float room[CPU_PIECE], *v = cpu_room(out, i, type, false, room);
        int64_t len = cpu_piece(n, i);

        for (int64_t k = 0; k < len; k++)
            v[k] = sum[i + k] + bias;
        if (pre)
            cpu_store_row(vm_to(pre, i, type), v, type, len, false);
        cpu_act_piece(v, v, len, act);
        cpu_put(out, i, type, false, v, len);
    }
}

/* One chunk of places of one image: columns, product, epilogue. A float32 product goes
 * straight to y; a bfloat16 one through scratch behind the columns. */
static void forward_chunk(const struct backend *be, const struct conv *p,
                          const struct conv_plan *c, const struct conv_forward *f,
                          const float *weight, float *scratch, int64_t image,
                          int64_t first, bool packed)
{
    int64_t n = c->places - first < c->chunk ? c->places - first : c->chunk;
    int64_t to = image * p->outputs * c->places + first;
    /* y [outputs][places] of one image: the product's rows are `places` apart */
    bool direct = p->type == ACCEL_F32;
    float *sum = direct ? (float *)f->y + to : scratch + c->depth * c->chunk;
    int64_t ld = direct ? c->places : n;

    columns(scratch, p,
            vm_at(f->x, image * p->channels * p->height * p->width, p->type), first, n);
    conv_product(be, false, false, p->outputs, n, c->depth, weight, c->depth, scratch,
                 n, false, sum, ld, packed);
    for (int64_t o = 0; o < p->outputs; o++) {
        int64_t at = to + o * c->places;
        float bias = 0.0f;

        if (f->bias)
            cpu_load_row(&bias, vm_at(f->bias, o, p->type), p->type, 1);
        /* a plain float32 result is complete */
        if (!direct || f->bias || f->act != ACCEL_ACT_NONE)
            finish_row(vm_to(f->y, at, p->type),
                       f->pre ? vm_to(f->pre, at, p->type) : NULL, p->type,
                       sum + o * ld, bias, n, f->act);
    }
}

/* Is there enough work for more than one thread? */
static bool is_large(const struct conv *p)
{
    return p->batch * p->outputs * p->out_h * p->out_w * p->channels * p->kernel_h *
               p->kernel_w >
           CPU_ALONE_PRODUCTS;
}

/* Tasks are chunks of places; which thread takes one does not matter. A thread packs
 * the weights once. */
void cpu_conv(const struct backend *be, const struct conv *p,
              const struct conv_forward *f, void *scratch)
{
    struct conv_plan c = conv_plan_of(p, false);
    float *own = scratch;
    const float *weight = weights_of(p, &c, f->weight, &own);

#pragma omp parallel num_threads(be->threads) if (is_large(p))
    {
        float *mine = own + omp_get_thread_num() * c.per_thread;
        bool packed = false;

#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < p->batch * c.chunks; t++) {
            forward_chunk(be, p, &c, f, weight, mine, t / c.chunks,
                          t % c.chunks * c.chunk, packed);
            packed = true;
        }
    }
}

/* Places [first, first + n) of dy of one image, [outputs][n]: in place, or widened into
 * `room`. */
static const float *delta(const struct conv *p, const struct conv_plan *c,
                          const void *dy, int64_t image, int64_t first, int64_t n,
                          float *room, int64_t *ld_out)
{
    int64_t at = image * p->outputs * c->places + first;

    *ld_out = p->type == ACCEL_F32 ? c->places : n;
    if (p->type == ACCEL_F32)
        return (const float *)dy + at;
    for (int64_t o = 0; o < p->outputs; o++)
        cpu_load_row(room + o * n, vm_at(dy, at + o * c->places, p->type), p->type, n);
    return room;
}

/* dx of channels [from, from + count) of one image. No other task writes them, so sums
 * need neither locks nor an order between tasks. */
static void input_grad(const struct backend *be, const struct conv *p,
                       const struct conv_plan *c, const struct conv_backward *b,
                       const float *weight, float *scratch, int64_t image, int64_t from,
                       bool packed)
{
    int64_t count = p->channels - from < c->channels ? p->channels - from : c->channels;
    int64_t plane = p->height * p->width, ld;
    /* this thread's scratch: columns, planes of dx, widened dy (conv_plan_of) */
    float *cols = scratch, *planes = cols + c->channels * c->taps * c->step;
    float *room = planes + c->channels * plane;

    memset(planes, 0, (size_t)(count * plane) * sizeof(*planes));
    for (int64_t at = 0; at < c->places; at += c->step) {
        int64_t n = c->places - at < c->step ? c->places - at : c->step;
        const float *dy = delta(p, c, b->dy, image, at, n, room, &ld);

        /* cols = weight^T dy, for the taps of these channels */
        conv_product(be, true, false, count * c->taps, n, p->outputs,
                     weight + from * c->taps, c->depth, dy, ld, false, cols, n,
                     packed || at > 0);
        scatter(planes, p, cols, count, at, n);
    }
    cpu_store_row(vm_to(b->dx, (image * p->channels + from) * plane, p->type), planes,
                  p->type, count * plane, b->add);
}

/* Partial weight gradient of the chunks [first, last), counted over all images. */
static void weight_grad(const struct backend *be, const struct conv *p,
                        const struct conv_plan *c, const struct conv_backward *b,
                        float *sum, float *scratch, int64_t first, int64_t last)
{
    memset(sum, 0, (size_t)c->weights * sizeof(*sum));
    for (int64_t t = first; t < last; t++) {
        int64_t image = t / c->chunks, at = t % c->chunks * c->chunk, ld;
        int64_t n = c->places - at < c->chunk ? c->places - at : c->chunk;
        const float *dy =
            delta(p, c, b->dy, image, at, n, scratch + c->depth * c->chunk, &ld);

        columns(scratch, p,
                vm_at(b->x, image * p->channels * p->height * p->width, p->type), at,
                n);
        /* sum += dy cols^T over these places */
        conv_product(be, false, true, p->outputs, c->depth, n, dy, ld, scratch, n, true,
                     sum, c->depth, false);
    }
}

/* dweight += the partial sums, in order. */
ACCEL_MULTIVERSION
static void add_groups(float *dweight, const float *sums, int64_t weights,
                       int64_t groups, int64_t first, int64_t n)
{
#pragma omp simd
    for (int64_t i = first; i < first + n; i++) {
        float v = 0.0f;

        for (int64_t k = 0; k < groups; k++)
            /* groups are cut by the shape, so this order is, too */
            v += sums[k * weights + i];
        dweight[i] += v;
    }
}

/* dbias of one output: images and pieces in order. */
static void bias_grad(const struct conv *p, const struct conv_plan *c, const void *dy,
                      float *dbias, int64_t o)
{
    float sum = 0.0f;

    for (int64_t image = 0; image < p->batch; image++) {
        const void *row = vm_at(dy, (image * p->outputs + o) * c->places, p->type);

        for (int64_t i = 0; i < c->places; i += CPU_PIECE) {
            float room[CPU_PIECE], part;
            int64_t len = cpu_piece(c->places, i);
            const float *d = cpu_get(row, i, p->type, len, room);

            VM_SUM(part, len, d[i]);
            sum += part;
        }
    }
    dbias[o] += sum;
}

/* Four loops in one team. The barrier after each is needed only before add_groups,
 * which reads the partial sums of all threads. */
void cpu_conv_grad(const struct backend *be, const struct conv *p,
                   const struct conv_backward *b, void *scratch)
{
    struct conv_plan c = conv_plan_of(p, true);
    /* images with the same channels follow each other: they need the same weights */
    int64_t parts = (p->channels + c.channels - 1) / c.channels;
    int64_t inputs = b->dx ? p->batch * parts : 0, tasks = p->batch * c.chunks;
    int64_t groups = b->dweight ? c.groups : 0;
    float *sums = scratch, *own;
    const float *weight = weights_of(p, &c, b->weight, &sums);

    /* shared scratch first: widened weights, then a partial sum per group */
    own = sums + c.groups * c.weights;
#pragma omp parallel num_threads(be->threads) if (is_large(p))
    {
        float *mine = own + omp_get_thread_num() * c.per_thread;
        int64_t packed = -1; /* the weights of these channels */

#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < inputs; t++) {
            int64_t from = t / p->batch * c.channels;

            input_grad(be, p, &c, b, weight, mine, t % p->batch, from, packed == from);
            packed = from;
        }
#pragma omp for schedule(dynamic)
        for (int64_t k = 0; k < groups; k++)
            weight_grad(be, p, &c, b, sums + k * c.weights, mine, k * tasks / groups,
                        (k + 1) * tasks / groups);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < (groups ? c.weights : 0); i += CPU_PIECE)
            add_groups(b->dweight, sums, c.weights, groups, i, cpu_piece(c.weights, i));
#pragma omp for schedule(dynamic)
        for (int64_t o = 0; o < (b->dbias ? p->outputs : 0); o++)
            bias_grad(p, &c, b->dy, b->dbias, o);
    }
}
