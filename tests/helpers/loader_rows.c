/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what the rule of batches and the samplers say, for a comparison with Accelerate
 * in Python: lines of words.
 *
 *     loader_rows batches DISPATCH N BATCH RANKS SPLIT DROP_LAST EVEN
 *         a line per rank: batches separated by " | "
 *     loader_rows torch SEED EPOCHS N
 *         a line per epoch: torch.randperm(N) seeded with SEED + epoch
 *
 * Reads such lines from standard input; a "." ends the answer to each.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "loader/batch_plan.h"
#include "loader/torch_random.h"

static void print_rank(const struct batch_plan *p, int64_t n, int rank)
{
    const char *between = "";

    for (int64_t s = 0; s < plan_steps(p, n); s++) {
        struct batch_part part =
            plan_part(p, s * plan_step_batch(p), plan_step_real(p, n, s), rank);

        if (part.count == 0)
            continue;
        printf("%s", between);
        for (int i = 0; i < part.count; i++)
            printf("%s%" PRId64, i ? " " : "", plan_place(&part, n, i));
        between = " | ";
    }
    printf("\n");
}

static void print_order(uint64_t seed, int64_t n)
{
    int64_t *order = malloc((size_t)(n > 0 ? n : 1) * sizeof(*order));

    if (!order)
        exit(71);
    torch_permutation(seed, n, order);
    for (int64_t i = 0; i < n; i++)
        printf("%s%" PRId64, i ? " " : "", order[i]);
    printf("\n");
    free(order);
}

int main(void)
{
    char line[256];

    while (fgets(line, sizeof(line), stdin)) {
        int dispatch, batch, ranks, split, drop_last, even;
        int64_t n, epochs;
        uint64_t seed;

        if (sscanf(line, "batches %d %" SCNd64 " %d %d %d %d %d", &dispatch, &n, &batch,
                   &ranks, &split, &drop_last, &even) == 7) {
            struct batch_plan p = { .batch = batch,
                                    .ranks = ranks,
                                    .split = split,
                                    .dispatch = dispatch,
                                    .drop_last = drop_last,
                                    .ends = even ? ENDS_EVEN : ENDS_UNEVEN };

            for (int rank = 0; rank < ranks; rank++)
                print_rank(&p, n, rank);
        } else if (sscanf(line, "torch %" SCNu64 " %" SCNd64 " %" SCNd64, &seed,
                          &epochs, &n) == 3) {
            for (int64_t e = 0; e < epochs; e++)
                print_order(seed + (uint64_t)e, n);
        } else {
            return 64;
        }
        printf(".\n");
        fflush(stdout);
    }
    return 0;
}
