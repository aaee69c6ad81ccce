/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes as a config file and as canonical text. Whatever they are, loading
 * must end with a config that survives its round trip, or with messages that have a place.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <stdio.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_config(const struct config *c)
{
    static char text[16 << 10], again[16 << 10];
    struct config back;

    if (config_encode(c, text, sizeof(text), NULL) ||
        config_decode(text, &back, NULL) ||
        config_encode(&back, again, sizeof(again), NULL) || strcmp(text, again))
        abort();
}

static void check_messages(const struct config_diags *d, const accel_error_t *err)
{
    if (!d->errors || !err->text[0] || !err->where[0])
        abort();
    for (size_t i = 0; i < d->count; i++) {
        if (strlen(d->item[i].text) > 4096)
            abort();
        /* Nothing that steers a terminal. */
        for (const char *s = d->item[i].text; *s; s++)
            if (((unsigned char)*s < 0x20 && *s != '\n') || *s == 0x7f)
                abort();
    }
}

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
        check_config(&c);
    else
        check_messages(&d, &err);
    config_diags_free(&d);
    close(fd);
    memcpy(text, data, size);
    text[size] = '\0';
    if (config_decode(text, &c, &err) == ACCEL_OK)
        check_config(&c);
    free(text);
    return 0;
}
