/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of the CUDA backend: chooses between our kernels and cuDNN's
 * (attention_path.h). In: a call as in kernels.h. Out: the same result on every path,
 * up to rounding.
 */
#include "backend/cuda/attention/attention_mma.h"
#include "backend/cuda/attention/attention_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env_names.h"

bool cuda_attention_open(struct cuda_state *s)
{
    s->attention = attn_forms_named(getenv(ENV_CUDA_ATTENTION));
    return attn_dnn_open(s);
}

void attn_tell(struct cuda_state *s, bool backward, const char *format, long long n)
{
    char text[48];

    if (s->attention_told[backward])
        return;
    s->attention_told[backward] = true;
    snprintf(text, sizeof(text), format, n);
    cuda_say(s, backward ? " (own gradient: %s)" : " (own attention: %s)", text);
}

size_t cuda_attention_scratch(const struct backend *be, const struct attention *p,
                              bool backward)
{
    (void)be;
    return cuda_attention_bytes(p, backward);
}

/* The path of a call. Where only the library is missing, the user is to know. */
static enum attn_path path_now(const struct backend *be, const struct attention *p,
                               const struct attention_grads *grads)
{
    const size_t version = attn_dnn_version(be);

    if (!version && attn_path_of(p, grads, DNN_VERSION_LEAST) == ATTN_CUDNN)
        attn_dnn_missed(be);
    return attn_path_of(p, grads, version);
}

/* --with-cuda-arch decides what nvcc makes. */
bool attn_has_wgmma(struct cuda_state *s, const struct attention *p)
{
#if defined(ACCEL_CUDA_SM90A) || !defined(__CUDACC__)
    return !(s->attention & ATTN_SYNC) && attn_wgmma_fits(p, s->compute) &&
           attn_wgmma_maps(s, p);
#else
    (void)s;
    (void)p;
    return false;
#endif
}

/* cuDNN may refuse a shape that fits on paper: then as if there were no cuDNN. */
void cuda_attention(const struct backend *be, const struct attention *p, void *out,
                    float *lse, void *scratch)
{
    enum attn_path path = path_now(be, p, NULL);

    if (path == ATTN_CUDNN && attn_dnn_forward(be, p, out, lse))
        return;
    switch (path == ATTN_CUDNN ? attn_path_of(p, NULL, 0) : path) {
    case ATTN_DECODE:
        attn_decode(be, p, out, lse, (float *)scratch);
        break;
    case ATTN_MMA:
        if (attn_has_wgmma(cuda_state_of(be), p))
            attn_wgmma_forward(be, p, out, lse);
        else
            attn_mma_forward(be, p, out, lse);
        break;
    default:
        attn_forward(be, p, out, lse);
    }
}

/* Scratch is delta; cuDNN keeps its own there as well. */
void cuda_attention_grad(const struct backend *be, const struct attention *p,
                         const struct attention_grads *grads, void *scratch)
{
    /* [batch, heads, queries]: sum of dout * out, which stands for the softmax in every
     * ds */
    float *delta = (float *)scratch;

    if (path_now(be, p, grads) == ATTN_CUDNN && attn_dnn_backward(be, p, grads, delta))
        return;
    attn_delta(be, p, grads, delta);
    if (attn_mma_fits(p, grads))
        attn_mma_backward(be, p, grads, delta);
    else
        attn_backward(be, p, grads, delta);
}
