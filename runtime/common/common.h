/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors, log, strings: what every stage needs and nothing else.
 * Includes only libc and the types of accel.h. Never prints, exits or aborts.
 */
#ifndef ACCEL_COMMON_H
#define ACCEL_COMMON_H

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ACCEL_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* ---- errors ---------------------------------------------------------------------- */

/* The one family of checks. A call of a chain: made only while `st` is ACCEL_OK, so
 * that the first failure ends the chain and what follows it can undo things. */
#define ACCEL_TRY(st, call)                                                            \
    do {                                                                               \
        if ((st) == ACCEL_OK)                                                          \
            (st) = (call);                                                             \
    } while (0)
/* Makes the call, and returns its status from this function where it is a failure: only
 * where nothing has to be undone. */
#define ACCEL_CHECK(st, call)                                                          \
    do {                                                                               \
        (st) = (call);                                                                 \
        if ((st) != ACCEL_OK)                                                          \
            return st;                                                                 \
    } while (0)

/* The stable codes of messages.def: A0001 ... Their values have a leading 1 (10001),
 * because 0001 would be octal. */
enum { MESSAGE_BASE = 10000 };
enum message {
    MESSAGE_NOTE = 0, /* a note, not an error: it has no page */
#define MESSAGE(number, status, title, why, cure) A##number = 1##number,
#include "common/messages.def"
#undef MESSAGE
};
/* What `accel explain` and the manual say of a code. */
struct message_page {
    int number; /* 101 for A0101 */
    accel_status_t status;
    const char *title, *why, *cure;
};
/* All pages, ordered by number; static. */
const struct message_page *message_pages(size_t *count_out);

/* Fills `err` (may be NULL) and returns the status of `code`, so that callers can write
 *     return accel_fail(err, A0801, "check the disk", "%s: %s", path, msg);
 * `hint` may be NULL. Clears err->where. Preserves errno. */
accel_status_t accel_fail(accel_error_t *err, enum message code, const char *hint,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same with the place: a file, "file:line:col", a key, a host. */
accel_status_t accel_fail_at(accel_error_t *err, enum message code, const char *where,
                             const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The code of an existing error, to make another one with it. */
static inline enum message message_of(const accel_error_t *err)
{
    return (enum message)(MESSAGE_BASE + err->message);
}
/* A new text for the error `cause` (not `err` itself): code, status, place
 * and hint stay. */
accel_status_t accel_fail_from(accel_error_t *err, const accel_error_t *cause,
                               const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* An error that came from another process: its texts end within their arrays. */
void error_end_texts(accel_error_t *err);
/* "error[A0101]", or "error" for number 0, into buf; returns buf. */
const char *message_tag(int number, char *buf, size_t len);
/* Out of memory while allocating `bytes` for `what`. */
accel_status_t accel_fail_nomem(accel_error_t *err, const char *what, size_t bytes);
/* What a status means to a user, in a few words; NULL beyond the last one. Static. */
const char *status_meaning(accel_status_t status);

/* ---- log ------------------------------------------------------------------------- */

/* Where the log lines of a run go. */
struct accel_log {
    accel_log_f fn; /* NULL: silent */
    void *user;
    accel_log_level_t level; /* less important lines are dropped */
};
/* Passes one line, without a newline, to the callback. `log` may be NULL. Cut
 * at 2047 bytes. */
void accel_logf(const struct accel_log *log, accel_log_level_t level, const char *fmt,
                ...) __attribute__((format(printf, 3, 4)));

/* ---- strings --------------------------------------------------------------------- */

/* snprintf, vsnprintf, sscanf and strtod with a point in numbers, whatever the
 * program's locale: for all that goes into files, logs and messages, or comes from
 * outside. The other functions of this header use them. */
int text_format(char *buf, size_t len, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int text_vformat(char *buf, size_t len, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
int text_scan(const char *s, const char *fmt, ...) __attribute__((format(scanf, 2, 3)));
double text_number(const char *s, char **end_out);
/* Decodes the UTF-8 character at s[n]: returns its length in bytes, the code point in
 * *cp_out; 0 when it is invalid. */
size_t utf8_next(const char *s, size_t n, uint32_t *cp_out);

/* A growing string, empty when zeroed. After a failed allocation `failed` is
 * set and appends do nothing, so callers check once at the end. strbuf_free
 * makes it empty again. */
struct strbuf {
    char *s; /* owned; NUL-terminated, or NULL before the first append */
    size_t len, cap;
    bool failed;
};
void strbuf_printf(struct strbuf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void strbuf_append(struct strbuf *b, const char *s, size_t n);
void strbuf_free(struct strbuf *b);

/* The one of names[n] that `word` is probably meant to be, or NULL. Allows an edit
 * distance of a third of the length, at least 2 (1 for words of up to 3 letters). */
const char *suggest_nearest(const char *word, const char *const *names, size_t n);

/* "512 B", "1.5 KiB", "31.2 GiB" into buf; returns buf. */
const char *format_bytes(double bytes, char *buf, size_t len);
/* 41234 -> "41.2k"; returns buf. */
const char *format_count(double n, char *buf, size_t len);

/* Monotonic clock, nanoseconds. */
int64_t clock_ns(void);
/* Environment variable as an integer; `otherwise` if unset, empty or not
 * a whole number. */
long env_long(const char *name, long otherwise);

/* Between these two calls a write beyond the file size limit (ulimit -f) fails with
 * EFBIG in this thread; otherwise SIGXFSZ would end the process. `before` is the
 * thread's signal mask. */
void file_limit_hold(sigset_t *before_out);
void file_limit_release(const sigset_t *before);

/* ---- what a run resumes from ----------------------------------------------------- */

/* The value of ACCEL_RESUME for what the user typed, into out (len bytes): auto, none,
 * best, or the path made absolute against `base` (NULL: the current directory). */
accel_status_t resume_choice(const char *text, const char *base, char *out, size_t len,
                             accel_error_t *err);
/* ACCEL_ENOENT if `choice`, made from `text` by resume_choice, is a path with nothing
 * there. */
accel_status_t resume_exists(const char *text, const char *choice, accel_error_t *err);

/* Size in bytes of one element; 0 for an unknown dtype. */
size_t accel_dtype_bytes(accel_dtype_t t);
/* The same for arrays of a program; 0 also for 8-bit floats. */
size_t accel_dtype_array_bytes(accel_dtype_t t);
/* Do tensors compute in it? */
static inline bool accel_dtype_is_float(accel_dtype_t t)
{
    return t == ACCEL_F32 || t == ACCEL_BF16 || t == ACCEL_F16;
}
/* "float32", "bfloat16" ...; static. */
const char *accel_dtype_name(accel_dtype_t t);

#ifdef __cplusplus
}
#endif

#endif
