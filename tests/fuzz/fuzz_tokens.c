/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as a token file, without the part of the header that nobody reads.
 * What is opened gives all its samples, each token below the vocabulary; what is
 * refused has a message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/data.h"
#include "data/token_file.h"

/* The file is in memory; the link to it has the ending of token files. */
static char dir[] = "/tmp/accel-fuzz-tokens-XXXXXX", path[64];
static int fd;

static void remove_files(void)
{
    unlink(path);
    rmdir(dir);
}

static void prepare(void)
{
    char target[64];

    fd = memfd_create("tokens", MFD_CLOEXEC);
    if (fd < 0 || !mkdtemp(dir))
        abort();
    snprintf(path, sizeof(path), "%s/t.bin", dir);
    snprintf(target, sizeof(target), "/proc/%d/fd/%d", (int)getpid(), fd);
    if (symlink(target, path))
        abort();
    atexit(remove_files);
}

static void check_samples(const accel_dataset_t *d, int seq)
{
    int32_t ids[16], targets[16];
    void *dst[] = { ids, targets };
    int vocab = accel_dataset_vocab(d);
    accel_error_t err;
    uint64_t digest;

    if (vocab < 1 || data_digest(d, &digest, &err))
        abort();
    for (int64_t i = 0; i < accel_dataset_samples(d); i++) {
        if (data_sample(d, i, dst, &err))
            abort();
        for (int k = 0; k < seq; k++)
            if (ids[k] < 0 || ids[k] >= vocab || targets[k] < 0 || targets[k] >= vocab)
                abort();
    }
}

/* The used words of the header, zeros up to its end, the tokens. */
static void write_file(const uint8_t *data, size_t size)
{
    size_t head = size < TOKEN_FILE_WORDS ? size : TOKEN_FILE_WORDS;

    if (ftruncate(fd, 0) || pwrite(fd, data, head, 0) != (ssize_t)head)
        abort();
    if (size <= head)
        return;
    if (ftruncate(fd, TOKEN_FILE_HEADER) ||
        pwrite(fd, data + head, size - head, TOKEN_FILE_HEADER) !=
            (ssize_t)(size - head))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int seq = size ? 1 + data[size - 1] % 16 : 1;
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };

    if (!path[0])
        prepare();
    write_file(data, size);
    if (!accel_dataset_open(&d, path, seq, (seq % 3) * 0.2, &err))
        check_samples(d, seq);
    else if (!err.text[0] || !err.hint[0])
        abort();
    accel_dataset_close(d);
    return 0;
}
