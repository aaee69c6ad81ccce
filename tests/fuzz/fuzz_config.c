/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as a config file and as canonical text. Whatever they are, loading
 * must end with a config that survives its round trip, or with messages that have a
 * place.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <stdio.h>

#include "tests/fuzz/fuzz_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("config", MFD_CLOEXEC);
    char path[64], *text = malloc(size + 1);
    struct config c;
    struct config_diags d;
    accel_error_t err;

    if (fd < 0 || !text || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (config_resolve(&(struct config_sources){ .job_path = path }, &c, &d, &err) ==
        ACCEL_OK)
        fuzz_check_config(&c);
    else
        fuzz_check_messages(&d, &err);
    config_diags_free(&d);
    close(fd);
    memcpy(text, data, size);
    text[size] = '\0';
    if (config_decode(text, &c, &err) == ACCEL_OK)
        fuzz_check_config(&c);
    free(text);
    return 0;
}
