/* SPDX-License-Identifier: Apache-2.0
 * serial_loop: a training loop in plain C, for one process:  ./serial_loop */
#include "curve.h"

int main(void)
{
    float w[BUMPS] = { 0 }, g[BUMPS];

    for (int step = 0; step < STEPS; step++) {
        double loss = 0;

        memset(g, 0, sizeof(g));
        for (int i = 0; i < BATCH; i++)
            loss += curve_sample((int64_t)step * BATCH + i, w, g, BATCH);
        for (int i = 0; i < BUMPS; i++)
            w[i] -= curve_rate(step) * g[i];
        printf("%d %.9g\n", step + 1, loss);
    }
    return 0;
}
