/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-in toolkit: inline PTX. The text of an instruction and its operands come in as
 * nvcc gets them, so a wrong operand shows here as it would on a GPU. Instructions of a
 * whole warp wait for all its lanes.
 */
#ifndef FAKECUDA_PTX_H
#define FAKECUDA_PTX_H

#include <initializer_list>

#pragma GCC visibility push(default)

/* kind: r 32 bits, f float, l 64 bits, n a number of the text. to: NULL where the
 * instruction may only read. */
struct fakecuda_operand {
    char kind;
    uint64_t bits;
    void *to;
};

typedef std::initializer_list<struct fakecuda_operand> fakecuda_operands;

/* An instruction whose text was read. */
struct fakecuda_ptx;

/* Never NULL: where the stand-in does not know the instruction, the run ends the
 * kernel. memory: the compiler was told that it orders accesses of memory. */
const struct fakecuda_ptx *fakecuda_ptx_read(const char *text, bool memory);
/* %0, %1, ... of the text are the operands of `out`, then those of `in`. */
void fakecuda_ptx_run(const struct fakecuda_ptx *ptx, fakecuda_operands out,
                      fakecuda_operands in);
/* The address in the space of shared memory, which fits 32 bits. */
size_t __cvta_generic_to_shared(const void *p);

#pragma GCC visibility pop

static inline struct fakecuda_operand fakecuda_in_r(uint32_t x)
{
    return { 'r', x, NULL };
}

static inline struct fakecuda_operand fakecuda_in_l(const void *x)
{
    return { 'l', (uint64_t)(uintptr_t)x, NULL };
}

static inline struct fakecuda_operand fakecuda_in_l(uint64_t x)
{
    return { 'l', x, NULL };
}

static inline struct fakecuda_operand fakecuda_in_n(int x)
{
    return { 'n', (uint64_t)x, NULL };
}

static inline struct fakecuda_operand fakecuda_in_f(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return { 'f', bits, NULL };
}

/* What an output held before is not readable. */
static inline struct fakecuda_operand fakecuda_out_r(uint32_t &x)
{
    return { 'r', 0xffffffffu, &x };
}

static inline struct fakecuda_operand fakecuda_out_f(float &x)
{
    return { 'f', 0xffffffffu, &x };
}

static inline struct fakecuda_operand fakecuda_both_f(float &x)
{
    struct fakecuda_operand o = fakecuda_in_f(x);

    o.to = &x;
    return o;
}

#endif
