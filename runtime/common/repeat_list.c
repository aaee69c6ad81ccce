/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of Slurm's repetition lists. A text that came through an environment comes
 * in, a number goes out. Never expands a list: it may name millions of nodes.
 */
#include "common/repeat_list.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* `value`, `times` in a row. Both are 1..INT_MAX, so that their product fits. */
struct repeat {
    int64_t value, times;
};

/* Takes a number of 1..INT_MAX from *text. */
static bool take_count(const char **text, int64_t *n_out)
{
    char *end;

    /* strtoll would accept blanks and signs. */
    if (**text < '0' || **text > '9')
        return false;
    *n_out = strtoll(*text, &end, 10);
    *text = end;
    return *n_out > 0 && *n_out <= INT_MAX;
}

/* Takes the next item, "2" or "2(x3)", and the comma after it. False: the list has
 * ended, or does not have this form. */
static bool take_repeat(const char **text, struct repeat *r)
{
    r->times = 1;
    if (!take_count(text, &r->value))
        return false;
    if (strncmp(*text, "(x", 2) == 0) {
        *text += 2;
        if (!take_count(text, &r->times) || *(*text)++ != ')')
            return false;
    }
    if (**text && **text != ',')
        return false;
    *text += **text == ',';
    return true;
}

int64_t repeat_list_at(const char *list, int64_t index)
{
    struct repeat r;

    while (list && index >= 0 && take_repeat(&list, &r)) {
        if (index < r.times)
            return r.value;
        index -= r.times;
    }
    return 0;
}

int64_t repeat_list_sum(const char *list, int64_t count)
{
    struct repeat r;
    int64_t sum = 0;

    while (count > 0) {
        if (!take_repeat(&list, &r))
            return -1;
        /* Of "2(x3)" only the nodes before ours count. */
        if (r.times > count)
            r.times = count;
        if (__builtin_add_overflow(sum, r.value * r.times, &sum))
            return -1;
        count -= r.times;
    }
    return sum;
}

int64_t repeat_list_total(const char *list)
{
    struct repeat r;
    int64_t sum = 0;

    while (list && *list)
        if (!take_repeat(&list, &r) ||
            __builtin_add_overflow(sum, r.value * r.times, &sum))
            return 0;
    return sum;
}
