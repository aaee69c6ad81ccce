/* SPDX-License-Identifier: Apache-2.0
 *
 * What a planner asks a backend before anything is allocated: bytes, from shapes. One
 * row per question; each is a function `size_t NAME(be, ...)` of struct backend.
 * Whoever includes this list first defines what a row becomes:
 *
 *   SCRATCH(name, ...)  memory that the caller hands to the kernel. It depends on the
 *                       shapes and on be->threads alone, so the meta backend shares
 *                       these functions with the backend that it rehearses.
 *
 * The bytes that depend on no shape are a member: fixed_bytes.
 */

/* Of conv or, with `backward`, of conv_grad. */
SCRATCH(conv_scratch, const struct conv *p, bool backward)
/* Of maxpool_grad; the forward needs none. */
SCRATCH(maxpool_scratch, const struct pool *p)
/* Of attention or attention_grad. Reads the shapes and dropout of `p`; its pointers
 * need not be set. */
SCRATCH(attention_scratch, const struct attention *p, bool backward)

#undef SCRATCH
