/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the stand-in toolkit: what PTX instructions do with their values. v[] holds
 * a lane's values in the order of the instruction's text, the results first.
 */
#ifndef FAKE_PTX_H
#define FAKE_PTX_H

#include "fakecuda.h"

/* Shared memory at an address of the shared space; ends the kernel where it is not a
 * multiple of 16, or the bytes are not the block's. */
char *fake_shared_at(uint64_t address, size_t bytes);

/* fake_mma.cc */
void fake_cvt_bf16x2(uint64_t *v);
void fake_mma_m16n8k16(uint64_t *const lanes[]);
void fake_ldmatrix_x4(uint64_t *const lanes[]);
void fake_ldmatrix_x4_trans(uint64_t *const lanes[]);

/* fake_async.cc */
void fake_cp_async(uint64_t *v);
void fake_cp_async_commit(uint64_t *v);
void fake_cp_async_wait(uint64_t *v);

#endif
