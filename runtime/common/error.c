/* SPDX-License-Identifier: Apache-2.0
 *
 * Status names, exit codes, and the functions that fill accel_error_t.
 * The exit codes are sysexits where one fits; 85 means "saved, run me again".
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/common.h"

/* One row per status. Values are fixed for ever: scripts see them. */
static const struct {
    const char *name;
    int exit_code;
    const char *meaning;
} status_table[] = {
    [ACCEL_OK] = { "ACCEL_OK", 0, "good" },
    [ACCEL_EUSAGE] = { "ACCEL_EUSAGE", 64, "wrong command line" },
    [ACCEL_ECONFIG] = { "ACCEL_ECONFIG", 65, "a problem in the config file" },
    [ACCEL_ENOENT] = { "ACCEL_ENOENT", 66, "an input file is missing" },
    [ACCEL_EUNAVAIL] = { "ACCEL_EUNAVAIL", 69,
                         "something needed is missing (PMIx server, peer, GPU, "
                         "program)" },
    [ACCEL_EBUG] = { "ACCEL_EBUG", 70, "a defect of accel" },
    [ACCEL_ESYSTEM] = { "ACCEL_ESYSTEM", 71, "the operating system refused" },
    [ACCEL_ECREATE] = { "ACCEL_ECREATE", 73, "cannot create an output" },
    [ACCEL_EIO] = { "ACCEL_EIO", 74, "read or write failed, or the disk is full" },
    [ACCEL_EPEER] = { "ACCEL_EPEER", 76, "a peer died or missed a deadline" },
    [ACCEL_EPERM] = { "ACCEL_EPERM", 77, "no permission, or not trusted" },
    [ACCEL_EPOLICY] = { "ACCEL_EPOLICY", 78, "the site forbids it" },
    [ACCEL_ERESUME] = { "ACCEL_ERESUME", 85,
                        "stopped cleanly with its state saved: run it again" },
    [ACCEL_EINVAL] = { "ACCEL_EINVAL", 64, "invalid argument to a function" },
    [ACCEL_ENOMEM] = { "ACCEL_ENOMEM", 71, "out of memory" },
    [ACCEL_EUNSUPPORTED] = { "ACCEL_EUNSUPPORTED", 65,
                             "recognised, but not supported yet" },
    [ACCEL_ECORRUPT] = { "ACCEL_ECORRUPT", 74, "stored data is damaged" },
    [ACCEL_EMISMATCH] = { "ACCEL_EMISMATCH", 65,
                          "world size, shape or run do not match" },
    [ACCEL_EDIVERGED] = { "ACCEL_EDIVERGED", 1, "the training diverged" },
    [ACCEL_ESTOPPED] = { "ACCEL_ESTOPPED", 75,
                         "stopped cleanly with its state saved; not restarted "
                         "automatically" },
};

static bool is_status(accel_status_t status)
{
    return (size_t)status < ACCEL_ARRAY_SIZE(status_table);
}

int accel_exit_code(accel_status_t status)
{
    return is_status(status) ? status_table[status].exit_code : 70;
}

const char *accel_status_name(accel_status_t status)
{
    return is_status(status) ? status_table[status].name : "ACCEL_UNKNOWN";
}

const char *status_meaning(accel_status_t status)
{
    return is_status(status) ? status_table[status].meaning : NULL;
}

const char *accel_version(void)
{
    return PACKAGE_VERSION;
}

int accel_api_version(void)
{
    return ACCEL_API_VERSION;
}

/* Ordered by number, because messages.def is. */
static const struct message_page pages[] = {
#define MESSAGE(number, status, title, why, cure)                                      \
    { A##number - MESSAGE_BASE, status, title, why, cure },
#include "common/messages.def"
#undef MESSAGE
};

const struct message_page *message_pages(size_t *count_out)
{
    *count_out = ACCEL_ARRAY_SIZE(pages);
    return pages;
}

const char *message_tag(int number, char *buf, size_t len)
{
    if (number)
        snprintf(buf, len, "error[A%04d]", number);
    else
        snprintf(buf, len, "error");
    return buf;
}

/* A linear search: it runs once per error, over a few hundred rows. */
static accel_status_t status_of(enum message code)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(pages); i++)
        if (pages[i].number == (int)code - MESSAGE_BASE)
            return pages[i].status;
    return ACCEL_EBUG;
}

/* Names come from programs, files and environments: none steers a terminal. */
static void defuse(char *text)
{
    for (; *text; text++)
        if (((unsigned char)*text < 0x20 && *text != '\n') || *text == 0x7f)
            *text = '?';
}

/* Common to accel_fail and accel_fail_at; `where` and `hint` may be NULL. errno
 * survives, because callers may print it after this. */
static accel_status_t error_fill(accel_error_t *err, enum message code,
                                 const char *where, const char *hint, const char *fmt,
                                 va_list ap)
{
    accel_status_t st = status_of(code);
    int saved = errno;

    if (!err)
        return st;
    err->code = st;
    err->message = (int)code - MESSAGE_BASE;
    snprintf(err->where, sizeof(err->where), "%s", where ? where : "");
    snprintf(err->hint, sizeof(err->hint), "%s", hint ? hint : "");
    text_vformat(err->text, sizeof(err->text), fmt, ap);
    defuse(err->where);
    defuse(err->text);
    errno = saved;
    return st;
}

accel_status_t accel_fail(accel_error_t *err, enum message code, const char *hint,
                          const char *fmt, ...)
{
    accel_status_t st;
    va_list ap;

    va_start(ap, fmt);
    st = error_fill(err, code, NULL, hint, fmt, ap);
    va_end(ap);
    return st;
}

accel_status_t accel_fail_at(accel_error_t *err, enum message code, const char *where,
                             const char *hint, const char *fmt, ...)
{
    accel_status_t st;
    va_list ap;

    va_start(ap, fmt);
    st = error_fill(err, code, where, hint, fmt, ap);
    va_end(ap);
    return st;
}

accel_status_t accel_fail_from(accel_error_t *err, const accel_error_t *cause,
                               const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return cause->code;
    *err = *cause;
    va_start(ap, fmt);
    text_vformat(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return err->code;
}

accel_status_t accel_fail_nomem(accel_error_t *err, const char *what, size_t bytes)
{
    char size[32];

    return accel_fail(err, A0001, "use more ranks, a smaller model or a smaller batch",
                      "out of memory: %s needs %s", what,
                      format_bytes((double)bytes, size, sizeof(size)));
}

void error_end_texts(accel_error_t *err)
{
    err->where[sizeof(err->where) - 1] = err->text[sizeof(err->text) - 1] =
        err->hint[sizeof(err->hint) - 1] = '\0';
}

/* For programs: an error without a code of the table, so number 0. */
accel_status_t accel_error_set(accel_error_t *err, accel_status_t status,
                               const char *text, const char *hint)
{
    if (!err)
        return status;
    memset(err, 0, sizeof(*err));
    err->code = status;
    snprintf(err->text, sizeof(err->text), "%s", text ? text : "");
    snprintf(err->hint, sizeof(err->hint), "%s", hint ? hint : "");
    return status;
}

void accel_error_format(const accel_error_t *err, char *buf, size_t len)
{
    char tag[16];

    if (!err || !buf)
        return;
    snprintf(buf, len, "%s: %s%s%s%s%s", message_tag(err->message, tag, sizeof(tag)),
             err->where, err->where[0] ? ": " : "", err->text,
             err->hint[0] ? "\n  cure: " : "", err->hint);
}
