/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions of the program as ranges of NVTX, which profilers such as nsys show beside
 * kernels. In: names. NVTX is a header: it finds a profiler by itself and costs a few
 * nanoseconds without one. Toolkits without it have no ranges.
 */
#include "backend/cuda/cuda.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
static int nvtxRangePushA(const char *name)
{
    (void)name;
    return 0;
}

static int nvtxRangePop(void)
{
    return 0;
}
#endif

void cuda_region_begin(const struct backend *be, const char *name)
{
    (void)be;
    (void)nvtxRangePushA(name);
}

void cuda_region_end(const struct backend *be)
{
    (void)be;
    (void)nvtxRangePop();
}
