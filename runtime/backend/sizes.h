/* SPDX-License-Identifier: Apache-2.0
 *
 * What a planner asks a backend before anything is allocated: bytes, from shapes. One
 * row per question; each is a function `size_t NAME(be, ...)` of struct backend.
 * Whoever includes this list first defines what a row becomes:
 *
 *   SCRATCH(name, ...)  memory that the caller hands to the kernel. It depends on the
 *                       shapes and on be->threads alone, so the meta backend shares
 *                       these functions with the backend that it rehearses.
 *   OWN(name, ...)      internal workspace of a kernel while it runs; NULL: none. The
 *                       answer may come from the device (cuDNN).
 *
 * The bytes that depend on no shape are members: fixed_bytes and own_least.
 */

/* Of conv or, with `backward`, of conv_grad. */
SCRATCH(conv_scratch, const struct conv *p, bool backward)
/* Of maxpool_grad; the forward needs none. */
SCRATCH(maxpool_scratch, const struct pool *p)
/* Of attention or attention_grad. Reads the shapes and dropout of `p`; its pointers
 * need not be set. */
SCRATCH(attention_scratch, const struct attention *p, bool backward)

/* Of gemm. */
OWN(gemm_own, const struct gemm *p)
/* Of embed_grad with a table; `rows` ids are sorted. */
OWN(embed_grad_own, int64_t rows)
/* Of attention or, with `grads`, of attention_grad. */
OWN(attention_own, const struct attention *p, const struct attention_grads *grads)

#undef SCRATCH
#undef OWN
