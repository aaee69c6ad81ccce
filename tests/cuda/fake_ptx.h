/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the stand-in toolkit: what PTX instructions do with their values. v[] holds
 * a lane's values in the order of the instruction's text, the results first.
 */
#ifndef FAKE_PTX_H
#define FAKE_PTX_H

#include "fakecuda.h"

/* The most operands of an instruction. Behind the values of v[] are the addresses of
 * the variables that are written: v[FAKE_OPERANDS + i] of v[i]. */
enum { FAKE_OPERANDS = 80 };

/* Shared memory at an address of the shared space; ends the kernel where it is not a
 * multiple of 16, or the bytes are not the block's. */
char *fake_shared_at(uint64_t address, size_t bytes);

/* fake_mma.cc */
/* What 16 bits are as a bfloat16, or as a float16. */
float fake_wide(uint16_t bits, bool f16);
void fake_cvt_bf16x2(uint64_t *v);
void fake_cvt_f16x2(uint64_t *v);
void fake_ex2(uint64_t *v);
template <bool f16> void fake_mma_m16n8k16(uint64_t *const lanes[]);
template <bool trans> void fake_ldmatrix_x4(uint64_t *const lanes[]);

/* fake_async.cc */
void fake_cp_async(uint64_t *v);
void fake_cp_async_commit(uint64_t *v);
void fake_cp_async_wait(uint64_t *v);

/* fake_barrier.cc: mbarrier objects */
void fake_mbarrier_init(uint64_t *v);
void fake_mbarrier_arrive(uint64_t *v);
void fake_mbarrier_expect(uint64_t *v);
void fake_mbarrier_wait(uint64_t *v);
void fake_fence_async(uint64_t *v);

/* fake_bulk.cc */
void fake_bulk_tensor_4d(uint64_t *v);

/* fake_wgmma.cc: all but the shapes are of a warp; what each does is its own quarter of
 * the warpgroup's. */
void fake_setmaxnreg(uint64_t *const lanes[]);
void fake_wgmma_fence(uint64_t *const lanes[]);
void fake_wgmma_commit(uint64_t *const lanes[]);
void fake_wgmma_wait(uint64_t *const lanes[]);
/* n: columns of the result; a in registers, or its descriptor; float16 or bfloat16. */
template <int n, bool registers_a, bool f16> void fake_wgmma(uint64_t *const lanes[]);

#endif
