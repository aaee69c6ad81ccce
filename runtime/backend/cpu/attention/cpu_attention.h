/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the CPU attention. It works on blocks of 64 queries x 64 keys, held
 * transposed (a row per key, a lane per query), so that softmax runs along lanes and K
 * and V are read as they are stored. Shared by forward, backward and decode; not used
 * outside this folder.
 */
#ifndef ACCEL_BACKEND_CPU_ATTENTION_H
#define ACCEL_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm/tile.h"

#define ATTN_BLOCK ATTN_QUERY_BLOCK

/* Workspace of one thread; d: head width, dp: d rounded up to TILE_LANES. */
struct attn_mem {
    float *k, *v;      /* [64][dp] rows of the key block */
    float *q, *dout;   /* [64][dp] rows of the query block; q scaled */
    float *qt, *doutt; /* [d][64] q and dout transposed */
    float *acc;        /* [d][64] output or dq, transposed */
    float *s, *ds;     /* [64][64] scores, probabilities and their gradient */
    float *keep;       /* [64][64] 0 or 1 / (1 - dropout) */
    float *dk, *dv;    /* [keys or 64][dp] gradients of keys and values */
    /* [64] per lane. Forward: running maximum and sum; backward: log-sum-exp and
     * delta */
    float *max, *sum;
    float *factor; /* [64] what earlier results are scaled by */
    enum tile_isa isa;
};

/* One query block against one key block. */
struct attn_pair {
    const struct attention *p;
    int64_t b, h;       /* sample and query head */
    int64_t q0, k0;     /* first query and first key */
    int64_t rows, keys; /* of this block, at most 64 each */
    int64_t lanes;      /* rows rounded up to TILE_LANES */
};

struct attn_pair attn_pair(const struct attention *p, int64_t b, int64_t h, int64_t q0,
                           int64_t k0);
/* Number of leading keys that some query before `q_end` of sample b may see. */
int64_t attn_key_limit(const struct attention *p, int64_t b, int64_t q_end);

/* Is there enough work for more than one thread? */
static inline bool attn_is_large(const struct attention *p)
{
    return p->batch * p->heads * p->queries * p->keys * p->head_width >
           CPU_ALONE_PRODUCTS / 4;
}

static inline int64_t attn_padded(int64_t head_width)
{
    return (head_width + TILE_LANES - 1) / TILE_LANES * TILE_LANES;
}
/* Lays out the workspace of one thread in `mem`, attention_thread_floats() long. */
struct attn_mem attn_mem(const struct attention *p, float *mem, bool backward,
                         bool whole);
/* Does the backward give a whole (sample, kv head) to each thread? Otherwise it makes
 * dq in one pass over blocks, dk and dv in another. The bits are the same. */
bool attn_whole(const struct attention *p, int threads);

/* Loads rows [first, first + rows) of sample b and head h, widened and times `scale`;
 * zeros beyond head_width and up to `padded` rows. dst [padded][dp]. */
void attn_load(const struct attention *p, float *dst, const struct heads *from,
               int64_t b, int64_t h, int64_t first, int64_t rows, int64_t padded,
               float scale);
/* dst[j * ldd + i] = src[i * lds + j], i < m, j < n. */
void attn_transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t m,
                    int64_t n);

/* s = K q^T where the query may see the key, minus infinity elsewhere. */
void attn_scores(const struct attn_pair *t, const struct attn_mem *m);
/* c [keys][64] = rows [keys][dp] x [d][64] where a query sees the key; the rest of c is
 * left alone. */
void attn_outer(const struct attn_pair *t, const struct attn_mem *m, const float *rows,
                const float *x, float *c);
/* acc [d][64] += rows^T [d][keys] x s [keys][64] */
void attn_gather(const struct attn_pair *t, const struct attn_mem *m, const float *rows,
                 const float *s, float *acc);
/* to [keys][dp] += s [keys][64] x rows [64][dp] */
void attn_scatter(const struct attn_pair *t, const struct attn_mem *m, const float *s,
                  const float *rows, float *to);

/* Row kernels: the lanes of a row are independent. attn_softmax turns scores into
 * exp(s - max), updates max and sum, and sets factor to what earlier sums must be
 * scaled by. */
void attn_softmax(float *s, int64_t keys, int64_t lanes, float *max, float *sum,
                  float *factor);
void attn_scale_rows(float *x, int64_t rows, int64_t lanes, const float *factor);
/* s -> exp(s - lse) */
void attn_probabilities(float *s, int64_t keys, int64_t lanes, const float *lse);
/* ds = p * (ds * keep - delta); then p *= keep. keep NULL: 1. */
void attn_score_grad(float *p, float *ds, const float *keep, int64_t keys,
                     int64_t lanes, const float *delta);
/* p *= keep */
void attn_multiply(float *p, const float *keep, int64_t keys, int64_t lanes);
/* Writes the dropout factors of one pair of blocks; the rule is in struct attention. */
void attn_keep(const struct attn_pair *t, float *keep);

/* One query per sample, no dropout: reads keys and values once, as they are stored. */
void attn_decode(const struct backend *be, const struct attention *p, void *out,
                 float *lse, void *scratch);

#endif
