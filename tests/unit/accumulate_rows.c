/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Accelerate's rows of accumulation: accumulate_rows.h.
 */
#include "tests/unit/accumulate_rows.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/tap.h"

static bool read_numbers(FILE *f, double *to, int n)
{
    for (int i = 0; i < n; i++)
        if (fscanf(f, "%lf", &to[i]) != 1)
            return false;
    return true;
}

static bool read_row(FILE *f, struct accumulate_row *row)
{
    if (fscanf(f, "%d %d", &row->batches, &row->every) != 2 ||
        2 * row->batches > ACCUMULATE_MOST)
        return false;
    return read_numbers(f, row->sync, 2 * row->batches) &&
           read_numbers(f, row->gradient, 2 * row->batches) &&
           read_numbers(f, row->step, 2 * row->batches);
}

void accumulate_rows(bool (*same)(const struct accumulate_row *row))
{
    const char *src = getenv("ACCEL_SRC");
    struct accumulate_row row;
    int rows = 0, good = 0;
    char path[512];
    FILE *f;

    snprintf(path, sizeof(path), "%s/tests/data/optim/accumulate.txt", src ? src : ".");
    f = fopen(path, "r");
    while (f && read_row(f, &row)) {
        rows++;
        good += same(&row);
    }
    tap_ok(rows == 24 && good == rows,
           "flags, gradients and counters are Accelerate's in %d of %d rows", good,
           rows);
    if (f)
        fclose(f);
}
