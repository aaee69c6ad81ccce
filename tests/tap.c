/* SPDX-License-Identifier: Apache-2.0
 *
 * TAP producer for unit tests. A skip is "ok N # SKIP reason", which prove and
 * automake's driver both count as skipped.
 */
#include "tap.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int planned = -1, run, failed;

static bool vok(bool pass, const char *fmt, va_list ap)
{
    run++;
    printf("%sok %d - ", pass ? "" : "not ", run);
    vprintf(fmt, ap);
    putchar('\n');
    fflush(stdout);
    failed += !pass;
    return pass;
}

void tap_plan(int tests)
{
    planned = tests;
    printf("1..%d\n", tests);
}

void tap_skip_all(const char *reason)
{
    printf("1..0 # SKIP %s\n", reason);
    exit(0);
}

bool tap_ok(bool pass, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vok(pass, fmt, ap);
    va_end(ap);
    return pass;
}

bool tap_is_int(long long got, long long want, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (!vok(got == want, fmt, ap))
        tap_diag("got %lld, want %lld", got, want);
    va_end(ap);
    return got == want;
}

bool tap_is_str(const char *got, const char *want, const char *fmt, ...)
{
    bool same = got && want ? strcmp(got, want) == 0 : got == want;
    va_list ap;

    va_start(ap, fmt);
    if (!vok(same, fmt, ap))
        tap_diag("got  \"%s\"\nwant \"%s\"", got ? got : "(null)",
                 want ? want : "(null)");
    va_end(ap);
    return same;
}

bool tap_is_close(double got, double want, double rel, const char *fmt, ...)
{
    bool pass = fabs(got - want) <= rel * fmax(fabs(want), 1e-30);
    va_list ap;

    va_start(ap, fmt);
    if (!vok(pass, fmt, ap))
        tap_diag("got %.9g, want %.9g (relative %g)", got, want, rel);
    va_end(ap);
    return pass;
}

void tap_skip(int tests, const char *reason)
{
    while (tests-- > 0)
        printf("ok %d # SKIP %s\n", ++run, reason);
    fflush(stdout);
}

void tap_diag(const char *fmt, ...)
{
    char buf[8192];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
        printf("# %s\n", line);
    fflush(stdout);
}

int tap_open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

int tap_done(void)
{
    if (planned < 0)
        printf("1..%d\n", run);
    else if (planned != run)
        tap_diag("planned %d tests but ran %d", planned, run);
    return failed || (planned >= 0 && planned != run);
}
