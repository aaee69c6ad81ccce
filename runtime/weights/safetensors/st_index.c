/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of a sharded model. In: its JSON text. Out: the file that each tensor is
 * said to be in. Only names of files beside the index are accepted. Never opens a file.
 */
#include <stdlib.h>
#include <string.h>

#include "st_internal.h"

/* of values in each other that nobody reads */
enum { SKIP_LEVELS = 32 };

/* A .safetensors file of the index's own directory, not hidden: an index must not make
 * us open other paths. */
static bool is_plain(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t n = strlen(name), tail = sizeof(suffix) - 1;

    return n > tail && n <= 255 && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + n - tail, suffix) == 0;
}

/* The object of weight_map. */
static bool take_map(struct json_scan *j, struct st_index *x)
{
    char *key, *value;
    size_t n = 0;

    while (json_scan_member(j, &n, &key)) {
        struct st_pair *list = st_grow(x->entry, x->count, &x->cap, sizeof(*list));

        if (!list)
            return json_scan_fail(j, st_no_memory);
        x->entry = list;
        if (!json_scan_string(j, &value))
            return false;
        while (value[0] == '.' && value[1] == '/')
            value += 2;
        /* checked before any file is opened */
        if (!is_plain(value))
            return json_scan_fail(j, "a shard is not named as a .safetensors file of "
                                     "this directory");
        x->entry[x->count++] = (struct st_pair){ key, value };
    }
    return !j->problem;
}

/* Sorts the entries; equal names are then neighbours. */
static accel_status_t st_index_check(struct st_index *x, const char *where,
                                     accel_error_t *err)
{
    char shown[ST_SHOWN];

    if (x->count == 0)
        return accel_fail_at(err, A0824, where, "copy or download the index again",
                             "the index has no weight_map with tensors");
    qsort(x->entry, x->count, sizeof(*x->entry), st_pair_compare);
    for (size_t i = 1; i < x->count; i++)
        if (st_pair_compare(&x->entry[i - 1], &x->entry[i]) == 0)
            return accel_fail_at(err, A0824, where, "copy or download the index again",
                                 "tensor %s appears twice",
                                 st_shown(x->entry[i].key, shown, sizeof(shown)));
    return ACCEL_OK;
}

/* Other keys, such as metadata, are skipped. */
accel_status_t st_index_parse(struct st_index *x, char *text, size_t len,
                              const char *where, accel_error_t *err)
{
    struct json_scan j = { .begin = text, .s = text, .end = text + len };
    bool mapped = false;
    accel_status_t st;
    size_t n = 0;
    char *key;

    memset(x, 0, sizeof(*x));
    while (json_scan_member(&j, &n, &key)) {
        if (strcmp(key, "weight_map") != 0) {
            json_scan_skip(&j, SKIP_LEVELS);
        } else if (mapped) {
            json_scan_fail(&j, "a second weight_map");
        } else {
            take_map(&j, x);
            mapped = true;
        }
    }
    if (json_scan_end(&j))
        st = st_index_check(x, where, err);
    else
        st = st_json_error(&j, where, "", err);
    if (st)
        st_index_free(x);
    return st;
}

void st_index_free(struct st_index *x)
{
    free(x->entry);
    memset(x, 0, sizeof(*x));
}

const char *st_index_find(const struct st_index *x, const char *tensor)
{
    const struct st_pair key = { .key = tensor },
                         *found = bsearch(&key, x->entry, x->count, sizeof(key),
                                          st_pair_compare);

    return found ? found->value : NULL;
}
