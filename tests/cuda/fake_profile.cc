/* SPDX-License-Identifier: Apache-2.0
 *
 * NVTX of the stand-in: keeps ranges as text.
 */
#include <cstdio>

#include "fakecuda.h"
#include "include/nvtx3/nvToolsExt.h"

static std::string ranges;
static int depth;

int nvtxRangePushA(const char *message)
{
    fake_lock hold(fake.lock);

    ranges += std::string("(") + message;
    return depth++;
}

int nvtxRangePop(void)
{
    fake_lock hold(fake.lock);

    ranges += ")";
    return --depth;
}

void fakecuda_ranges_get(char *buf, size_t len)
{
    fake_lock hold(fake.lock);

    snprintf(buf, len, "%s", ranges.c_str());
    ranges.clear();
}
