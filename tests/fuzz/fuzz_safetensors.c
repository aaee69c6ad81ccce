/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as the header of a safetensors file (with as much data behind it
 * as they speak of), as a whole file, and as an index. What is accepted holds every
 * byte of the data exactly once; what is refused says why, in plain characters.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weights/safetensors/st_internal.h"

static void check(bool good)
{
    if (!good)
        abort();
}

static void check_error(const accel_error_t *err)
{
    check(err->text[0] && err->code != ACCEL_OK);
    for (const char *s = err->text; *s; s++)
        check((unsigned char)*s >= 0x20 && (unsigned char)*s <= 0x7e);
    for (const char *s = err->where; *s; s++)
        check((unsigned char)*s >= 0x20 && (unsigned char)*s <= 0x7e);
}

static char *copy_of(const uint8_t *data, size_t size)
{
    char *exact = malloc(size ? size : 1); /* a step beyond its end is seen */

    check(exact != NULL);
    memcpy(exact, data, size);
    return exact;
}

/* The largest end of a range, found without the parser; 0: none. */
static int64_t data_bytes(const uint8_t *data, size_t size)
{
    static const char key[] = "data_offsets\":[";
    int64_t most = 0;

    for (size_t i = 0; i + sizeof(key) < size; i++) {
        int64_t v = 0;
        size_t k = i + sizeof(key) - 1;

        if (memcmp(data + i, key, sizeof(key) - 1) != 0)
            continue;
        while (k < size && data[k] != ',' && data[k] != ']')
            k++;
        for (k++; k < size && data[k] >= '0' && data[k] <= '9' && v < 1 << 30; k++)
            v = 10 * v + (data[k] - '0');
        most = v > most ? v : most;
    }
    return most;
}

/* Counts every byte of small data, and the bytes of large data by the shapes. */
static void check_header(const struct st_header *h, int64_t bytes)
{
    static unsigned char seen[4096];
    unsigned __int128 sum = 0;

    memset(seen, 0, sizeof(seen));
    for (size_t i = 0; i < h->count; i++) {
        const struct st_tensor *t = &h->tensor[i];
        unsigned __int128 elems = 1;

        check(t->pub.name && t->pub.ndim >= 0 && t->pub.ndim <= ACCEL_CKPT_MAX_DIMS);
        check(i == 0 || strcmp(h->tensor[i - 1].pub.name, t->pub.name) < 0);
        for (int d = 0; d < t->pub.ndim; d++)
            elems *= (unsigned __int128)t->pub.shape[d];
        check(elems * (unsigned)t->dtype->bits == (unsigned __int128)t->pub.bytes * 8);
        check(t->begin >= 0 && t->begin <= bytes && t->pub.bytes <= bytes - t->begin);
        sum += (unsigned __int128)t->pub.bytes;
        for (int64_t b = 0; bytes <= (int64_t)sizeof(seen) && b < t->pub.bytes; b++)
            check(!seen[t->begin + b]++);
    }
    check(sum == (unsigned __int128)bytes);
}

static bool parse_header(const uint8_t *data, size_t size, int64_t bytes)
{
    char *text = copy_of(data, size);
    accel_error_t err = { 0 };
    struct st_header h;
    bool good = st_header_parse(&h, text, size, bytes, "file", &err) == ACCEL_OK;

    if (good)
        check_header(&h, bytes);
    else
        check_error(&err);
    if (good)
        st_header_free(&h);
    free(text);
    return good;
}

static void parse_index(const uint8_t *data, size_t size)
{
    char *text = copy_of(data, size);
    accel_error_t err = { 0 };
    struct st_index x;

    if (st_index_parse(&x, text, size, "index", &err) == ACCEL_OK) {
        for (size_t i = 0; i < x.count; i++)
            check(!strchr(x.entry[i].value, '/') && x.entry[i].value[0] != '.');
        st_index_free(&x);
    } else {
        check_error(&err);
    }
    free(text);
}

/* Opens the file behind fd and reads all of every float tensor. */
static void read_all(int fd)
{
    static float value[4096];
    char path[64];
    accel_safetensors_t *s = NULL;
    accel_error_t err = { 0 };

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (accel_safetensors_open(&s, path, &err)) {
        check_error(&err);
        return;
    }
    for (size_t i = 0; i < accel_safetensors_count(s); i++) {
        const accel_safetensors_tensor_t *t = accel_safetensors_at(s, i);

        check(accel_safetensors_find(s, t->name) == t);
        if (t->elems > (int64_t)ACCEL_ARRAY_SIZE(value))
            continue;
        if (accel_safetensors_read(s, t, 0, t->elems, value, &err))
            check(err.code == ACCEL_EUNSUPPORTED);
        if (t->ndim == 2 &&
            accel_safetensors_read_transposed(s, t, 0, t->elems, value, &err))
            check(err.code == ACCEL_EUNSUPPORTED);
    }
    accel_safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    int64_t bytes = data_bytes(data, size);
    uint8_t head[8];

    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && ftruncate(fd, 0) == 0);
    check(pwrite(fd, data, size, 0) == (ssize_t)size);
    read_all(fd); /* the first 8 bytes as a length */
    parse_index(data, size);
    if (!parse_header(data, size, bytes) || bytes > 1 << 16)
        return 0;
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(size >> 8 * i);
    check(pwrite(fd, head, 8, 0) == 8 && pwrite(fd, data, size, 8) == (ssize_t)size &&
          ftruncate(fd, 8 + (off_t)size + bytes) == 0);
    read_all(fd);
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

static size_t replace(uint8_t *data, size_t size, size_t max, size_t at, size_t old,
                      const void *with, size_t n)
{
    if (size - old + n > max)
        return size;
    memmove(data + at + n, data + at + old, size - at - old);
    memcpy(data + at, with, n);
    return size - old + n;
}

/* Start and length of what stands between brackets, commas and colons. */
static size_t pick(const uint8_t *data, size_t size, size_t *len)
{
    static const char ends[] = "{}[],:";
    size_t at = below(size), end = at;

    while (at > 0 && !memchr(ends, data[at - 1], sizeof(ends) - 1))
        at--;
    while (end < size && !memchr(ends, data[end], sizeof(ends) - 1))
        end++;
    *len = end - at;
    return at;
}

/* Mistakes of the grammar: a word replaced by one at a limit, doubled, or gone; a
 * digit, a bracket or a byte changed. libFuzzer and replay.c both call this. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    static const char *const words[] = {
        "0",
        "1",
        "2",
        "4",
        "8",
        "12",
        "24",
        "-1",
        "1.0",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "\"F32\"",
        "\"F64\"",
        "\"BF16\"",
        "\"U8\"",
        "\"a\"",
        "\"\\u0000\"",
        "\"\\ud83d\\ude00\"",
        "\"dtype\"",
        "\"shape\"",
        "\"data_offsets\"",
        "\"__metadata__\"",
        "\"weight_map\"",
        "\"m-1.safetensors\"",
        "\"../m.safetensors\"",
        "{}",
        "[]",
        "[2,3]",
        "[0,24]",
        "[24,48]",
        "{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}",
    };
    const char *w;
    uint8_t copy[256];
    size_t at, len;

    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    w = words[below(ACCEL_ARRAY_SIZE(words))];
    if (size == 0)
        return size;
    at = pick(data, size, &len);
    switch (below(5)) {
    case 0: /* a word gone, with what ended it */
        return replace(data, size, max, at, len + (at + len < size), "", 0);
    case 1: /* a word, elsewhere too */
        if (at + len == size || len + 1 > sizeof(copy))
            return size;
        memcpy(copy, data + at, len + 1);
        at = pick(data, size, &len);
        return replace(data, size, max, at, 0, copy, len + 1);
    case 2: /* one character */
        data[below(size)] = (uint8_t)("0123456789\"{}[],:\\ u"[below(20)]);
        return size;
    default:
        return replace(data, size, max, at, len, w, strlen(w));
    }
}
