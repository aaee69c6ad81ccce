/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a unit, as ranges of its flat elements: what a parameter has in a range,
 * what this rank answers for. In: a unit's layout. Out: numbers.
 */
#include "shard/shard_impl.h"

bool shard_param_range(const accel_tensor_t *p, int64_t first, int64_t count,
                       int64_t *begin_out, int64_t *end_out)
{
    int64_t b = first - p->param->unit_offset, e = b + count;

    *begin_out = b < 0 ? 0 : b;
    *end_out = e > p->elems ? p->elems : e;
    return *begin_out < *end_out;
}

/* Ranks that hold copies of a part share it, in equal pieces; the last may be empty. No
 * piece cuts a block of moments. */
void shard_answers(const struct shard *s, const struct shard_unit *u,
                   int64_t *first_out, int64_t *count_out)
{
    int copies = s->copies ? comm_size(s->copies) : 1;
    int64_t each = (u->own + copies - 1) / copies;
    int64_t from;

    if (s->copies && (shard_has_scaled_masters(s) || shard_has_scaled_state(s)))
        each = (each + SCALED_BLOCK - 1) / SCALED_BLOCK * SCALED_BLOCK;
    else if (s->copies && u->optim >= 0 && s->store.trainer[u->optim].form)
        each = (each + MOMENT_BLOCK - 1) / MOMENT_BLOCK * MOMENT_BLOCK;
    from = s->copies ? comm_rank(s->copies) * each : 0;
    from = from < u->own ? from : u->own;
    *first_out = s->rank * u->own + from;
    *count_out = u->own - from < each ? u->own - from : each;
}
