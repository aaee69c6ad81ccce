/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD shim: a training gets SIGTERM while it logs step STOP_AT_STEP, so that it
 * ends with the step after, wherever it runs.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int fd, const void *buf, size_t len)
{
    static ssize_t (*real)(int, const void *, size_t);
    const char *step = getenv("STOP_AT_STEP");
    char record[48];

    if (!real)
        real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(record, sizeof(record), "{\"step\":%.20s,", step ? step : "");
    if (step && len > strlen(record) && memcmp(buf, record, strlen(record)) == 0)
        raise(SIGTERM);
    return real(fd, buf, len);
}
