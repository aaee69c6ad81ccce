/* SPDX-License-Identifier: Apache-2.0
 *
 * A loader in a checkpoint is a line of text:
 *
 *     loader.NAME=epoch=E taken=T over=0 places=N sampler=keyed seed=S held_out=0 ...
 *
 * `taken` counts the positions of the epoch that all ranks together have taken, so that
 * a run can resume with the next one on any number of ranks. The words after `over`
 * must agree: a position means the same sample only in the same order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/key_lines.h"
#include "loader/loader.h"
#include "loader/loader_impl.h"

/* What the order depends on, as words. */
static void order_words(const struct accel_loader *l, char *buf, size_t len)
{
    const struct sampler *s = &l->sampler;

    if (l->iterable)
        snprintf(buf, len, "places=%" PRId64 " sampler=iterable",
                 data_stream_samples(l->data));
    else
        snprintf(buf, len,
                 "places=%" PRId64 " sampler=%s seed=%" PRIu64
                 " held_out=%d bucket=%" PRId64,
                 s->places, sampler_name(s->kind), s->seed, l->held_out, s->bucket);
}

void loader_state_encode(const struct accel_loader *l, struct strbuf *text)
{
    char order[256];

    order_words(l, order, sizeof(order));
    strbuf_printf(
        text, LOADER_LINE_FRONT "%s=epoch=%" PRId64 " taken=%" PRId64 " over=%d %s\n",
        l->name, l->epoch, l->taken, l->over, order);
}

static accel_status_t not_a_line(const struct accel_loader *l, const char *line,
                                 accel_error_t *err)
{
    return accel_fail_at(err, A0932, l->name, "start a new run",
                         "the line of the loader is not one: '%s'", line);
}

static accel_status_t read_spot(const struct accel_loader *l, const char *text,
                                struct loader_spot *spot_out, bool *found_out,
                                accel_error_t *err)
{
    char key[96], line[384], order[256];
    int64_t epoch, taken, places = loader_places(l);
    int over, used = 0;

    snprintf(key, sizeof(key), LOADER_LINE_FRONT "%s", l->name);
    *found_out = key_line(text, key, line, sizeof(line));
    if (!*found_out)
        return ACCEL_OK;
    order_words(l, order, sizeof(order));
    if (sscanf(line, "epoch=%" SCNd64 " taken=%" SCNd64 " over=%d %n", &epoch, &taken,
               &over, &used) != 3 ||
        used == 0 || epoch < 0 || epoch > INT32_MAX || taken < 0 || over < 0 ||
        over > 1)
        return not_a_line(l, line, err);
    if (strcmp(line + used, order) != 0)
        return accel_fail_at(
            err, A0932, l->name, "open it with these, or give it another name",
            "the checkpoint's loader has '%s', this one '%s'", line + used, order);
    if (places >= 0 && taken > places)
        return not_a_line(l, line, err);
    *spot_out = (struct loader_spot){ epoch, taken, over };
    return ACCEL_OK;
}

accel_status_t loader_state_check(const struct accel_loader *l, const char *text,
                                  accel_error_t *err)
{
    struct loader_spot spot;
    bool found;

    return read_spot(l, text, &spot, &found, err);
}

accel_status_t loader_state_decode(struct accel_loader *l, const char *text,
                                   bool *found_out, accel_error_t *err)
{
    struct loader_spot spot;
    accel_status_t st = read_spot(l, text, &spot, found_out, err);

    if (st == ACCEL_OK && *found_out)
        loader_seek(l, spot.epoch, spot.taken, spot.over);
    return st;
}
