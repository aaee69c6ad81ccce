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

/* ---- errors ------------------------------------------------------------------------- */

/* Stable codes of messages.def: A0001 ... Their values have a 1 in front, which keeps the
 * compiler from reading them as octal. */
enum { MESSAGE_BASE = 10000 };
enum message {
    MESSAGE_NOTE = 0, /* a note, no error: it has no page */
#define MESSAGE(number, status, title, why, cure) A##number = 1##number,
#include "common/messages.def"
#undef MESSAGE
};
struct message_page {
    int number; /* 101 for A0101 */
    accel_status_t status;
    const char *title, *why, *cure;
};
/* All pages in the order of their numbers; static. */
const struct message_page *message_pages(size_t *count_out);

/* Fills `err` (may be NULL) and returns the status of `code`, so that callers write
 *     return accel_fail(err, A0801, "check the disk", "%s: %s", path, msg);
 * `hint` may be NULL. Clears `where`. Keeps errno. */
accel_status_t accel_fail(accel_error_t *err, enum message code, const char *hint,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* As accel_fail, with the place. */
accel_status_t accel_fail_at(accel_error_t *err, enum message code, const char *where,
                             const char *hint, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The code of an error that somebody else made, to pass it on. */
static inline enum message message_of(const accel_error_t *err)
{
    return (enum message)(MESSAGE_BASE + err->message);
}
/* As accel_fail, with code, status, place and hint of `cause` (not `err` itself). */
accel_status_t accel_fail_from(accel_error_t *err, const accel_error_t *cause,
                               const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "error[A0101]", or "error" for an error without a code, into buf; returns buf. */
const char *message_tag(int number, char *buf, size_t len);
/* Out of memory while allocating `bytes` for `what`. */
accel_status_t accel_fail_nomem(accel_error_t *err, const char *what, size_t bytes);
/* What a status means to a user, a few words; NULL beyond the last one. Static. */
const char *status_meaning(accel_status_t status);

/* ---- log ---------------------------------------------------------------------------- */

struct accel_log {
    accel_log_f fn; /* NULL: silent */
    void *user;
    accel_log_level_t level; /* lines above it are dropped */
};
/* One line, without newline, to the callback. `log` may be NULL. */
void accel_logf(const struct accel_log *log, accel_log_level_t level, const char *fmt,
                ...) __attribute__((format(printf, 3, 4)));

/* ---- strings -------------------------------------------------------------------------- */

/* Growing string. After a failed allocation `failed` is set and appends do nothing. */
struct strbuf {
    char *s; /* NUL-terminated once anything was appended, else NULL */
    size_t len, cap;
    bool failed;
};
void strbuf_printf(struct strbuf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void strbuf_append(struct strbuf *b, const char *s, size_t n);
void strbuf_free(struct strbuf *b);

/* The nearest of names[n] within edit distance max(2, len/3) (2 for len <= 8), or NULL. */
const char *suggest_nearest(const char *word, const char *const *names, size_t n);

/* "512 B", "1.5 KiB", "31.2 GiB" into buf; returns buf. */
const char *format_bytes(double bytes, char *buf, size_t len);
/* 41234 -> "41.2k"; returns buf. */
const char *format_count(double n, char *buf, size_t len);

/* Monotonic clock, nanoseconds. */
int64_t clock_ns(void);
/* Environment variable as integer; `otherwise` when unset or not a whole number. */
long env_long(const char *name, long otherwise);

/* Between these two a write beyond the file size limit fails with EFBIG in this thread, in
 * place of a SIGXFSZ that ends the process; `before` keeps the thread's signal mask. */
void file_limit_hold(sigset_t *before);
void file_limit_release(const sigset_t *before);

/* ---- what a run goes on from --------------------------------------------------------- */

#define ENV_RESUME "ACCEL_RESUME" /* auto, none or an absolute path */
/* `text` is auto, none or a path; the path is made absolute against `base` (NULL: the
 * current directory). Into out: the text of ACCEL_RESUME. */
accel_status_t resume_choice(const char *text, const char *base, char *out, size_t len,
                             accel_error_t *err);
/* Is there something at the path that `text` was made into? */
accel_status_t resume_exists(const char *text, const char *choice, accel_error_t *err);

/* Size in bytes of one element; 0 for an unknown dtype. */
size_t accel_dtype_bytes(accel_dtype_t t);
/* The same of an array in memory or in a file; 0 also where there are none of that dtype. */
size_t accel_dtype_stored_bytes(accel_dtype_t t);
/* "float32", "bfloat16" ...; static. */
const char *accel_dtype_name(accel_dtype_t t);

#ifdef __cplusplus
}
#endif

#endif
