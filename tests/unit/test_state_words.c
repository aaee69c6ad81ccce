/* SPDX-License-Identifier: Apache-2.0
 *
 * Words of a checkpoint's text that are longer than any save writes: each reader takes
 * as much as it has place for, and shows exactly that. A row is a reader; the lengths
 * are those around its place, and far beyond.
 */
#include <stdio.h>
#include <string.h>

#include "state/state.h"
#include "handle/run.h"
#include "training/master_weights.h"
#include "training/moments_form.h"
#include "training/parts.h"
#include "tests/tap.h"

static accel_t run;

static accel_status_t masters(const char *text, accel_error_t *err)
{
    accel_dtype_t type;

    return masters_find("dir", text, &type, err);
}

static accel_status_t moments(const char *text, accel_error_t *err)
{
    accel_moments_t forms[ACCEL_MAX_OPTIMS];

    return moments_find(&run, "dir", text, forms, err);
}

static accel_status_t powersgd(const char *text, accel_error_t *err)
{
    return compression_part.find(&run, "dir", text, err);
}

static accel_status_t flat_shards(const char *text, accel_error_t *err)
{
    bool local;

    return local_find(&run, "dir", text, &local, err);
}

static const struct {
    const char *key;
    size_t room; /* characters of a word */
    accel_status_t (*find)(const char *text, accel_error_t *err);
    const char *before, *after; /* the message around the word; NULL: to any other */
} readers[] = {
    { "masters", 63, masters, "the form of its masters is not known: '", "'" },
    { "moments", 15, moments, "the form of its moments is not known: '", "'" },
    { "powersgd", 127, powersgd, "the checkpoint's PowerSGD is ",
      ", but the run's is rank 0" },
    { "state_dict", 127, flat_shards, "its kind of state is not known: '", "'" },
};

static void check(size_t i, size_t length)
{
    const size_t kept = length < readers[i].room ? length : readers[i].room;
    char word[400], text[500], want[600];
    accel_error_t err = { 0 };
    accel_status_t st;

    /* no two places alike, so that a cut shows */
    for (size_t k = 0; k < length; k++)
        word[k] = (char)('a' + k % 26);
    word[length] = '\0';
    snprintf(text, sizeof(text), "steps=1\n%s=%s\nseed=2\n", readers[i].key, word);
    st = readers[i].find(text, &err);
    snprintf(want, sizeof(want), "%s%.*s%s", readers[i].before, (int)kept, word,
             readers[i].after);
    tap_ok(st != ACCEL_OK && !strncmp(err.text, want, strlen(want)) && err.hint[0] &&
               !strcmp(err.where, "dir"),
           "%s of %zu characters: %s", readers[i].key, length, err.text);
}

int main(void)
{
    run.boot.size = 1;
    run.optims = 1;
    run.compression.on = true;
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(readers); i++) {
        const size_t room = readers[i].room,
                     lengths[] = { 1, room - 1, room, room + 1, room + 2, 300 };

        for (size_t k = 0; k < ACCEL_ARRAY_SIZE(lengths); k++)
            check(i, lengths[k]);
    }
    return tap_done();
}
