/* SPDX-License-Identifier: Apache-2.0
 *
 * A config that was resolved where the job was started comes in; its values take their
 * places below and above the program's. Their texts were checked there, and their files
 * may not be here: messages name them by config_where.
 */
#include <stdio.h>
#include <string.h>

#include "config/sources/single_value.h"

/* Messages about the row point to where its value came from. */
static void place_row(struct validator *v, struct lones *l, const struct config *from,
                      size_t row)
{
    struct lone *one;
    char path[128];

    if (from->origin[row] == ORIGIN_DEFAULT)
        return;
    one = lone_next(l);
    config_where(from, config_key_path(&v->schema[row], path, sizeof(path)), one->label,
                 sizeof(one->label));
    one->in = (struct config_text){ .path = one->label, .origin = from->origin[row] };
    v->value_at[row] = (struct place){ .in = &one->in };
}

void resolved_take(struct validator *v, struct lones *l, const struct config *from,
                   bool stronger)
{
    static const struct config_text site = { .path = "site file",
                                             .origin = ORIGIN_SITE };
    struct config *cfg = v->cfg;

    for (size_t row = 0; row < v->keys; row++) {
        if (from->locked[row] && !stronger) {
            cfg->locked[row] = true;
            v->lock_at[row].in = &site;
        }
        if (v->schema[row].moved_to || (from->origin[row] > ORIGIN_PROGRAM) != stronger)
            continue;
        value_restore(cfg, from, row);
        place_row(v, l, from, row);
    }
    /* values that are not keys */
    cfg->has_accel_section |= from->has_accel_section;
    memcpy(cfg->job_path, from->job_path, sizeof(cfg->job_path));
    memcpy(cfg->deepspeed_more, from->deepspeed_more, sizeof(cfg->deepspeed_more));
}
