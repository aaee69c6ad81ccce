/* SPDX-License-Identifier: Apache-2.0
 *
 * Driver for fuzz targets where libFuzzer is not there: runs every file given, then N
 * mutations of them, the same ones every time for the same seed. TAP on stdout.
 *     fuzz_X [-n N] [-s SEED] FILE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/common.h"
#include "tests/tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target may bring mutations that know its grammar, as it does for libFuzzer. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
    __attribute__((weak));

enum { LONGEST = 4096, LARGEST_FILE = 2 << 20 };

struct input {
    uint8_t *data;
    size_t size;
};

static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static bool read_input(const char *path, struct input *in)
{
    FILE *f = fopen(path, "re");

    in->data = malloc(LARGEST_FILE);
    if (!f || !in->data)
        return false;
    in->size = fread(in->data, 1, LARGEST_FILE, f);
    fclose(f);
    return true;
}

/* Inserts `n` bytes of `from` at `at`, dropping what no longer fits. */
static void insert(uint8_t *buf, size_t *size, size_t at, const uint8_t *from, size_t n)
{
    if (n > LONGEST - at)
        n = LONGEST - at;
    if (*size + n > LONGEST)
        *size = LONGEST - n;
    if (at < *size)
        memmove(buf + at + n, buf + at, *size - at);
    memcpy(buf + at, from, n);
    *size = (at < *size ? *size : at) + n;
}

/* One small change; pieces of other inputs and YAML's own signs find the most. */
static void mutate(uint8_t *buf, size_t *size, const struct input *other)
{
    static const char signs[] = "{}[]:,-?&*!|>'\"%@`#\n\t \r\\~.0123456789";
    size_t at = next() % (*size + 1), n;
    uint8_t sign = (uint8_t)signs[next() % (sizeof(signs) - 1)];

    switch (next() % 6) {
    case 0:
        if (at < *size)
            buf[at] ^= (uint8_t)(1 << next() % 8);
        break;
    case 1:
        if (at < *size)
            buf[at] = sign;
        break;
    case 2:
        insert(buf, size, at, &sign, 1);
        break;
    case 3:
        n = at < *size ? 1 + next() % (*size - at) : 0;
        n = next() % 4 ? n % 8 : n;
        memmove(buf + at, buf + at + n, *size - at - n);
        *size -= n;
        break;
    case 4:
        if (other->size) {
            size_t from = next() % other->size;

            n = 1 + next() % (other->size - from);
            insert(buf, size, at, other->data + from, n > 200 ? 200 : n);
        }
        break;
    default:
        if (at < *size)
            buf[at] = (uint8_t)next();
        break;
    }
}

static void run_mutations(const struct input *in, int count, long runs)
{
    uint8_t *buf = malloc(LONGEST);

    for (long i = 0; buf && i < runs; i++) {
        const struct input *base = &in[next() % (uint64_t)count];
        size_t size = base->size < LONGEST ? base->size : LONGEST;

        memcpy(buf, base->data, size);
        for (uint64_t changes = 1 + next() % 6; changes > 0; changes--) {
            if (LLVMFuzzerCustomMutator && next() % 4)
                size = LLVMFuzzerCustomMutator(buf, size, LONGEST, (unsigned)next());
            else
                mutate(buf, &size, &in[next() % (uint64_t)count]);
        }
        LLVMFuzzerTestOneInput(buf, size);
    }
    tap_ok(buf != NULL, "%ld mutations", runs);
    free(buf);
}

int main(int argc, char **argv)
{
    long runs = 1000;
    struct input *in;
    int opt, count;

    state = 1;
    while ((opt = getopt(argc, argv, "n:s:")) > 0) {
        if (opt == 'n')
            runs = atol(optarg);
        else if (opt == 's')
            state = strtoull(optarg, NULL, 10) * 2 + 1;
        else
            return 64;
    }
    count = argc - optind;
    in = calloc((size_t)count + 1, sizeof(*in));
    if (!in || !count)
        return 64;
    for (int i = 0; i < count; i++) {
        if (!read_input(argv[optind + i], &in[i]))
            return 66;
        LLVMFuzzerTestOneInput(in[i].data, in[i].size);
    }
    tap_ok(true, "%d files", count);
    run_mutations(in, count, runs);
    for (int i = 0; i < count; i++)
        free(in[i].data);
    free(in);
    return tap_done();
}
