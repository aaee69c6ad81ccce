/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as a MANIFEST, as they are and sealed again with the right hash,
 * whole and as a rank's fragment. What is accepted must print as the very same text,
 * and its boxes must hold every element once inside its files; what is refused must say
 * why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint/manifest/ckpt_manifest.h"
#include "checkpoint/ckpt_internal.h"

#define SEAL_BYTES 35

static void check_error(const accel_error_t *err)
{
    if (!err->text[0])
        abort();
    for (const char *s = err->text; *s; s++)
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
            abort();
    for (const char *s = err->where; *s; s++)
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e)
            abort();
}

/* Counts, element by element and without the library's arithmetic, how often each one
 * of a small tensor is stored. */
static void check_tiling(const struct ckpt_manifest *m, const struct ckpt_tensor *t)
{
    static unsigned char seen[4096];
    int64_t volume = ckpt_volume(t->ndim, t->shape);

    if (volume > (int64_t)sizeof(seen))
        return;
    memset(seen, 0, sizeof(seen));
    for (size_t i = t->box; i < t->box + t->boxes; i++) {
        const struct ckpt_mbox *b = &m->box[i];
        int64_t index[ACCEL_CKPT_MAX_DIMS] = { 0 }, left = 1;

        for (int d = 0; d < t->ndim; d++)
            left *= b->shape[d];
        for (; left > 0; left--) {
            int64_t at = 0;
            int d = t->ndim;

            for (int k = 0; k < t->ndim; k++)
                at = at * t->shape[k] + b->offset[k] + index[k];
            if (at < 0 || at >= volume || seen[at]++)
                abort();
            while (d-- > 0 && ++index[d] == b->shape[d])
                index[d] = 0;
        }
    }
    for (int64_t i = 0; i < volume; i++)
        if (!seen[i])
            abort();
}

static void check_ranges(const struct ckpt_manifest *m)
{
    for (size_t i = 0; i < m->boxes; i++) {
        const struct ckpt_mbox *a = &m->box[i];

        if (a->file < 0 || a->file >= m->world || a->bytes < 1 ||
            a->pieces != (size_t)((a->bytes - 1) / CKPT_PIECE_BYTES + 1) ||
            (unsigned __int128)a->at + (unsigned __int128)a->bytes >
                (unsigned __int128)m->file[a->file].bytes)
            abort();
        for (size_t k = 0; k < i; k++) {
            const struct ckpt_mbox *b = &m->box[k];

            if (a->file == b->file && a->at < b->at + b->bytes &&
                b->at < a->at + a->bytes)
                abort();
        }
    }
}

static void parse(const uint8_t *data, size_t size, bool fragment)
{
    struct ckpt_manifest m = { 0 };
    struct strbuf again = { 0 };
    accel_error_t err = { 0 };
    int file = -1;

    if (ckpt_manifest_parse(&m, (const char *)data, size, fragment, "MANIFEST", &err)) {
        check_error(&err);
        return;
    }
    for (size_t i = 0; i < m.tensors && !fragment; i++)
        check_tiling(&m, &m.tensor[i]);
    if (!fragment)
        check_ranges(&m);
    for (int f = 0; fragment && f < m.world; f++)
        if (m.file[f].name[0])
            file = f;
    if (ckpt_manifest_format(&m, file, &again, &err) || again.len != size ||
        memcmp(again.s, data, size) != 0)
        abort();
    strbuf_free(&again);
    ckpt_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t body =
        size >= SEAL_BYTES && data[size - SEAL_BYTES] == 'X' ? size - SEAL_BYTES : size;
    uint8_t *sealed = malloc(body + SEAL_BYTES + 1), *exact = malloc(size ? size : 1);
    XXH128_hash_t h = XXH3_128bits(data, body);

    if (!sealed || !exact)
        abort();
    memcpy(exact, data, size);
    parse(exact, size, false);
    free(exact);
    memcpy(sealed, data, body);
    snprintf((char *)sealed + body, SEAL_BYTES + 1, "X %016llx%016llx\n",
             (unsigned long long)h.high64, (unsigned long long)h.low64);
    exact = realloc(sealed, body + SEAL_BYTES);
    if (!exact)
        abort();
    parse(exact, body + SEAL_BYTES, false);
    parse(exact, body + SEAL_BYTES, true);
    free(exact);
    return 0;
}

static uint64_t state;

static size_t below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return n ? state % n : 0;
}

/* Replaces data[at, at+old) by `with`; returns the new size, or `size` if it is too
 * long. */
static size_t replace(uint8_t *data, size_t size, size_t max, size_t at, size_t old,
                      const void *with, size_t n)
{
    if (size - old + n > max)
        return size;
    memmove(data + at + n, data + at + old, size - at - old);
    memcpy(data + at, with, n);
    return size - old + n;
}

/* Start and length of a line (blank = '\n') or a word (' ') around a random place. */
static size_t pick(const uint8_t *data, size_t size, char blank, size_t *len)
{
    size_t at = below(size), end = at;

    while (at > 0 && data[at - 1] != blank && data[at - 1] != '\n')
        at--;
    while (end < size && data[end] != blank && data[end] != '\n')
        end++;
    *len = end - at;
    return at;
}

/* The grammar's own mistakes: a line or word gone, doubled or moved; a number replaced
 * by one at a limit. libFuzzer and replay.c both call this when it is there. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    static const char *const words[] = {
        "0",       "1",
        "2",       "3",
        "-",       "4x4",
        "0x0",     "2x4",
        "1x1x1",   "64",
        "1048576", "1048577",
        "99999",   "4611686018427387904",
        "float32", "uint8",
        "float64", "rng",
        "model/a", "9223372036854775807",
    };
    const char *w = words[0];
    uint8_t copy[600];
    size_t at, len;

    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    w = words[below(ACCEL_ARRAY_SIZE(words))];
    if (size == 0)
        return size;
    switch (below(6)) {
    case 0: /* a line gone */
        at = pick(data, size, '\n', &len);
        return replace(data, size, max, at, len + (at + len < size), "", 0);
    case 1: /* a line, elsewhere too */
        at = pick(data, size, '\n', &len);
        if (at + len == size || len + 1 > sizeof(copy))
            return size;
        memcpy(copy, data + at, len + 1);
        at = pick(data, size, '\n', &(size_t){ 0 });
        return replace(data, size, max, at, 0, copy, len + 1);
    case 2: /* one digit */
        for (int i = 0; i < 50; i++) {
            at = below(size);
            if (data[at] >= '0' && data[at] <= '9') {
                data[at] = (uint8_t)('0' + below(10));
                break;
            }
        }
        return size;
    case 3: /* an extent inside a word */
        at = pick(data, size, 'x', &len);
        return replace(data, size, max, at, len, w, strlen(w));
    default: /* a word */
        at = pick(data, size, ' ', &len);
        return replace(data, size, max, at, len, w, strlen(w));
    }
}
