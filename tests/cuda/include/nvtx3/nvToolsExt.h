/* SPDX-License-Identifier: Apache-2.0
 *
 * The two calls of NVTX that the CUDA module makes, and what they were.
 */
#ifndef FAKECUDA_NVTX_H
#define FAKECUDA_NVTX_H

#include <stddef.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

int nvtxRangePushA(const char *message);
int nvtxRangePop(void);
/* Writes all ranges since the last call, "(outer(inner))", cut at len. */
void fakecuda_ranges_get(char *buf, size_t len);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
