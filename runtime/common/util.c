/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines, growing strings, units, the clock and the sizes of dtypes.
 * Failures here are only a `failed` flag, and nothing prints.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/common.h"

void accel_logf(const struct accel_log *log, accel_log_level_t level, const char *fmt,
                ...)
{
    char line[2048];
    va_list ap;

    if (!log || !log->fn || level > log->level)
        return;
    va_start(ap, fmt);
    text_vformat(line, sizeof(line), fmt, ap);
    va_end(ap);
    log->fn(log->user, level, line);
}

/* Makes room for `more` bytes and the NUL; doubles, so that appends are cheap. */
static bool strbuf_reserve(struct strbuf *b, size_t more)
{
    size_t cap = b->cap ? b->cap : 128;
    char *s;

    if (b->failed)
        return false;
    while (cap < b->len + more + 1)
        cap *= 2;
    if (cap == b->cap)
        return true;
    s = realloc(b->s, cap);
    if (!s) {
        b->failed = true;
        return false;
    }
    b->s = s;
    b->cap = cap;
    return true;
}

void strbuf_append(struct strbuf *b, const char *s, size_t n)
{
    if (!strbuf_reserve(b, n))
        return;
    memcpy(b->s + b->len, s, n);
    b->len += n;
    b->s[b->len] = '\0';
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    va_start(ap, fmt);
    va_copy(again, ap);
    n = text_vformat(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        b->failed = true;
    else if (strbuf_reserve(b, (size_t)n)) {
        text_vformat(b->s + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void strbuf_free(struct strbuf *b)
{
    free(b->s);
    memset(b, 0, sizeof(*b));
}

/* Units of 1024. */
const char *format_bytes(double bytes, char *buf, size_t len)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
    size_t u = 0;

    while (bytes >= 1024 && u + 1 < ACCEL_ARRAY_SIZE(unit)) {
        bytes /= 1024;
        u++;
    }
    text_format(buf, len, u == 0 ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
    return buf;
}

/* Units of 1000, without a blank: numbers of parameters, tokens. */
const char *format_count(double n, char *buf, size_t len)
{
    static const char *const unit[] = { "", "k", "M", "G", "T" };
    size_t u = 0;

    while (n >= 1000 && u + 1 < ACCEL_ARRAY_SIZE(unit)) {
        n /= 1000;
        u++;
    }
    text_format(buf, len, u == 0 ? "%.0f%s" : "%.1f%s", n, unit[u]);
    return buf;
}

/* Monotonic, so a clock that is set does not move deadlines. */
int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Text after the number makes it invalid: "4x" is more likely a mistake than a 4. */
long env_long(const char *name, long otherwise)
{
    const char *s = getenv(name);
    char *end;
    long v;

    if (!s || !*s)
        return otherwise;
    errno = 0;
    v = strtol(s, &end, 10);
    return errno || *end ? otherwise : v;
}

static const struct {
    const char *name;
    size_t bytes;
} dtype_table[] = {
    [ACCEL_F32] = { "float32", 4 }, [ACCEL_BF16] = { "bfloat16", 2 },
    [ACCEL_I32] = { "int32", 4 },   [ACCEL_U16] = { "uint16", 2 },
    [ACCEL_U8] = { "uint8", 1 },    [ACCEL_F64] = { "float64", 8 },
    [ACCEL_I64] = { "int64", 8 },   [ACCEL_F16] = { "float16", 2 },
    [ACCEL_F8E4M3] = { "e4m3", 1 }, [ACCEL_F8E5M2] = { "e5m2", 1 },
    [ACCEL_I8] = { "int8", 1 },
};

size_t accel_dtype_bytes(accel_dtype_t t)
{
    return (size_t)t < ACCEL_ARRAY_SIZE(dtype_table) ? dtype_table[t].bytes : 0;
}

size_t accel_dtype_array_bytes(accel_dtype_t t)
{
    return t == ACCEL_F8E4M3 || t == ACCEL_F8E5M2 ? 0 : accel_dtype_bytes(t);
}

const char *accel_dtype_name(accel_dtype_t t)
{
    return (size_t)t < ACCEL_ARRAY_SIZE(dtype_table) ? dtype_table[t].name : "unknown";
}
