/* SPDX-License-Identifier: Apache-2.0
 *
 * common/: errors and exit codes, log, strings, did-you-mean, units, numbers of the
 * environment, dtypes, bfloat16, threads.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/bf16.h"
#include "common/common.h"
#include "common/thread.h"
#include "tests/tap.h"

static void test_errors(void)
{
    static const struct {
        accel_status_t status;
        int exit_code;
    } pinned[] = {
        { ACCEL_OK, 0 },         { ACCEL_EUSAGE, 64 },   { ACCEL_ECONFIG, 65 },
        { ACCEL_ENOENT, 66 },    { ACCEL_EUNAVAIL, 69 }, { ACCEL_EBUG, 70 },
        { ACCEL_ESYSTEM, 71 },   { ACCEL_ECREATE, 73 },  { ACCEL_EIO, 74 },
        { ACCEL_EPEER, 76 },     { ACCEL_EPERM, 77 },    { ACCEL_EPOLICY, 78 },
        { ACCEL_ERESUME, 85 },   { ACCEL_ENOMEM, 71 },   { ACCEL_ECORRUPT, 74 },
        { ACCEL_EMISMATCH, 65 }, { ACCEL_EDIVERGED, 1 }, { ACCEL_ESTOPPED, 75 },
    };
    accel_error_t err = { 0 };
    char text[2048];

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(pinned); i++)
        tap_is_int(accel_exit_code(pinned[i].status), pinned[i].exit_code, "exit of %s",
                   accel_status_name(pinned[i].status));
    tap_is_int(accel_exit_code((accel_status_t)999), 70, "unknown status is a bug");
    tap_is_int(accel_fail_at(&err, A0801, "f.h5", "free space", "write: %s", "full"),
               ACCEL_EIO, "accel_fail_at returns its code");
    accel_error_format(&err, text, sizeof(text));
    tap_is_str(text, "error[A0801]: f.h5: write: full\n  cure: free space",
               "formatted error");
}

/* What is kept, cleared, cut and passed on. */
static void test_error_parts(void)
{
    accel_error_t err, cause;
    char text[2048], many[2000];

    memset(&err, 'x', sizeof(err));
    errno = ENOSPC;
    tap_is_int(accel_fail(&err, A0802, NULL, "no %s: %m", "room"), ACCEL_EIO,
               "no hint");
    tap_is_int(errno, ENOSPC, "errno is as it was");
    tap_ok(err.code == ACCEL_EIO && err.message == 802 && !err.where[0] &&
               !err.hint[0] &&
               strcmp(err.text, "no room: No space left on device") == 0,
           "every part: %s", err.text);
    accel_error_format(&err, text, sizeof(text));
    tap_is_str(text, "error[A0802]: no room: No space left on device",
               "without place and cure");
    tap_is_int(accel_fail_at(NULL, A0801, "x", "y", "z"), ACCEL_EIO, "nobody wants it");
    tap_is_int(accel_fail(&err, (enum message)19999, NULL, "x"), ACCEL_EBUG,
               "a code without a page is a bug");

    accel_fail_at(&cause, A0809, "f.h5", "older one", "damaged");
    tap_is_int(accel_fail_from(&err, &cause, "rank %d: %s", 3, cause.text),
               ACCEL_ECORRUPT, "passed on with its status");
    tap_ok(err.message == 809 && message_of(&err) == A0809 &&
               !strcmp(err.where, "f.h5") && !strcmp(err.hint, "older one") &&
               !strcmp(err.text, "rank 3: damaged"),
           "code, place and cure: %s", err.text);
    tap_is_int(accel_fail_from(NULL, &cause, "x"), ACCEL_ECORRUPT, "to nobody");
    tap_is_int(accel_fail_nomem(&err, "a thing", 3 << 20), ACCEL_ENOMEM, "memory");
    tap_is_str(err.text, "out of memory: a thing needs 3.0 MiB", "how much");
    tap_is_int(accel_error_set(&err, ACCEL_EUSAGE, NULL, "h"), ACCEL_EUSAGE,
               "set by a program");
    accel_error_format(&err, text, sizeof(text));
    tap_is_str(text, "error: \n  cure: h", "an error without a code");
    memset(many, 'y', sizeof(many) - 1);
    many[sizeof(many) - 1] = '\0';
    accel_fail_at(&err, A0801, many, many, "%s", many);
    tap_ok(strlen(err.text) == sizeof(err.text) - 1 &&
               strlen(err.where) == sizeof(err.where) - 1 &&
               strlen(err.hint) == sizeof(err.hint) - 1,
           "too long: cut");
    tap_is_str(message_tag(7, text, sizeof(text)), "error[A0007]", "a tag");
    tap_is_str(message_tag(0, text, sizeof(text)), "error", "none");
}

static void test_statuses(void)
{
    size_t n = 0;
    const struct message_page *page = message_pages(&n);
    int wrong = 0;

    for (int i = 0; i <= ACCEL_ESTOPPED; i++) {
        wrong += strncmp(accel_status_name((accel_status_t)i), "ACCEL_", 6) != 0 ||
                 !status_meaning((accel_status_t)i) ||
                 (i > 0 && accel_exit_code((accel_status_t)i) == 0);
        for (int k = 0; k < i; k++)
            wrong += strcmp(accel_status_name((accel_status_t)i),
                            accel_status_name((accel_status_t)k)) == 0;
    }
    tap_is_int(wrong, 0, "names and meanings of %d statuses", ACCEL_ESTOPPED + 1);
    tap_is_str(accel_status_name((accel_status_t)(ACCEL_ESTOPPED + 1)), "ACCEL_UNKNOWN",
               "the one behind the last");
    tap_ok(!status_meaning((accel_status_t)(ACCEL_ESTOPPED + 1)) &&
               !status_meaning((accel_status_t)-1),
           "it means nothing");
    tap_is_int(accel_exit_code((accel_status_t)(ACCEL_ESTOPPED + 1)), 70,
               "and exits as a bug");
    for (size_t i = 1; i < n; i++)
        wrong += page[i].number <= page[i - 1].number;
    tap_ok(n > 100 && !wrong, "%zu pages in the order of their numbers", n);
}

static void test_report(void)
{
    FILE *const before = stderr;
    accel_error_t err;
    char *out = NULL;
    size_t len;

    accel_error_set(&err, ACCEL_EUSAGE, "x", NULL);
    stderr = open_memstream(&out, &len);
    accel_report(&err);
    fclose(stderr);
    stderr = before;
    tap_is_str(out, "error: x\n", "a text of one letter is reported");
    free(out);
}

static char said[3000];
static int lines;

static void keep(void *user, accel_log_level_t level, const char *line)
{
    lines += *(int *)user;
    snprintf(said, sizeof(said), "%d %s", level, line);
}

static void test_log(void)
{
    int one = 1;
    struct accel_log log = { keep, &one, ACCEL_LOG_WARN };
    char many[2500];

    accel_logf(&log, ACCEL_LOG_WARN, "a %d", 5);
    tap_is_str(said, "1 a 5", "a line");
    accel_logf(&log, ACCEL_LOG_INFO, "b");
    tap_is_str(said, "1 a 5", "none above the level");
    accel_logf(&log, ACCEL_LOG_ERROR, "c");
    tap_is_int(lines, 2, "one below it");
    memset(many, 'z', sizeof(many) - 1);
    many[sizeof(many) - 1] = '\0';
    accel_logf(&log, ACCEL_LOG_ERROR, "%s", many);
    tap_is_int((long long)strlen(said), 2 + 2047, "a long one is cut");
    accel_logf(NULL, ACCEL_LOG_ERROR, "d");
    accel_logf(&(struct accel_log){ NULL, NULL, ACCEL_LOG_DEBUG }, ACCEL_LOG_ERROR,
               "d");
    tap_is_int(lines, 3, "no log, no line");
}

static void test_strbuf(void)
{
    struct strbuf b = { 0 };
    int wrong = 0;

    strbuf_append(&b, "", 0);
    tap_ok(b.s && b.len == 0 && b.s[0] == '\0', "nothing, ended by a NUL");
    for (int i = 0; i < 5000; i++) {
        if (i % 2)
            strbuf_printf(&b, "%c", 'a' + i % 26);
        else
            strbuf_append(&b, &(char){ (char)('a' + i % 26) }, 1);
        wrong += b.len != (size_t)i + 1 || b.cap < b.len + 1 || b.s[b.len] != '\0';
    }
    for (int i = 0; i < 5000; i++)
        wrong += b.s[i] != 'a' + i % 26;
    tap_ok(!wrong && !b.failed, "5000 letters one by one");
    strbuf_printf(&b, "%4000d|", 7);
    tap_ok(b.len == 9001 && b.s[8999] == '7' && b.s[9000] == '|', "a long number");
    strbuf_free(&b);
    tap_ok(!b.s && !b.len && !b.cap, "freed");
    b.failed = true;
    strbuf_append(&b, "x", 1);
    strbuf_printf(&b, "x");
    tap_ok(!b.s && b.len == 0, "nothing more after a failure");
}

static void test_env(void)
{
    static const struct {
        const char *text;
        long want;
    } cases[] = {
        { "12", 12 },
        { "-3", -3 },
        { "0", 0 },
        { " 4", 4 },
        { "", -9 },
        { "4 ", -9 },
        { "4x", -9 },
        { "x", -9 },
        { "0x10", -9 },
        { "1.5", -9 },
        { "9223372036854775808", -9 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        setenv("ACCEL_TEST_NUMBER", cases[i].text, 1);
        tap_is_int(env_long("ACCEL_TEST_NUMBER", -9), cases[i].want,
                   "'%s' in the environment", cases[i].text);
    }
    unsetenv("ACCEL_TEST_NUMBER");
    tap_is_int(env_long("ACCEL_TEST_NUMBER", -9), -9, "not there");
}

static void test_dtypes(void)
{
    static const struct {
        accel_dtype_t t;
        size_t bytes, array;
        const char *name;
    } cases[] = {
        { ACCEL_F32, 4, 4, "float32" },
        { ACCEL_BF16, 2, 2, "bfloat16" },
        { ACCEL_I32, 4, 4, "int32" },
        { ACCEL_U16, 2, 2, "uint16" },
        { ACCEL_U8, 1, 1, "uint8" },
        { ACCEL_F64, 8, 8, "float64" },
        { ACCEL_I64, 8, 8, "int64" },
        { ACCEL_F16, 2, 2, "float16" },
        { ACCEL_F8E4M3, 1, 0, "e4m3" },
        { ACCEL_F8E5M2, 1, 0, "e5m2" },
        { ACCEL_I8, 1, 1, "int8" },
        { (accel_dtype_t)11, 0, 0, "unknown" },
        { (accel_dtype_t)-1, 0, 0, "unknown" },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_ok(accel_dtype_bytes(cases[i].t) == cases[i].bytes &&
                   accel_dtype_array_bytes(cases[i].t) == cases[i].array &&
                   strcmp(accel_dtype_name(cases[i].t), cases[i].name) == 0,
               "dtype %d: %s", cases[i].t, accel_dtype_name(cases[i].t));
}

static void test_suggest(void)
{
    static const char *const names[] = {
        "fsdp_sharding_strategy",
        "num_processes",
        "num_machines",
        "debug",
        "NO",
        "keep",
        "keen",
    };
    static const struct {
        const char *word, *want;
    } cases[] = {
        { "fsdp_sharding_stratgy", "fsdp_sharding_strategy" },
        { "num_process", "num_processes" },
        { "num_machine", "num_machines" },
        { "debgu", "debug" },
        { "zzzzzz", NULL },
        { "N0", "NO" },
        { "keet", "keep" }, /* both are one edit away: the first */
        { "keenn", "keen" },
        { "DBEUG", "debug" },
        { "fsdp_shrading_stratgy_x", "fsdp_sharding_strategy" },
        { "xyzfsdp_sharding_stra", "fsdp_sharding_strategy" },
        { "wxyzfsdp_sharding_stra", NULL },
        { "fsdp_sharding_strategy_fsdp_sharding_strategy_fsdp_sharding_strat", NULL },
        { "", NULL },
        { "kepe", "keep" }, /* a swap is one edit */
        { "eke", NULL },    /* of three letters one edit is allowed */
        { "on", "NO" },
        { "onn", NULL },
        { "deb", NULL },
        { "debu", "debug" },
        { "de", NULL },
        { "ebg", NULL },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_is_str(suggest_nearest(cases[i].word, names, ACCEL_ARRAY_SIZE(names)),
                   cases[i].want, "did you mean for '%s'", cases[i].word);
}

/* Pairs: is the second a suggestion for the first? */
static void test_alike(void)
{
    static const struct {
        const char *word, *name;
        bool alike;
    } cases[] = {
        { "list", "test", false },          /* two letters of two replaced */
        { "ddp.yaml", "fsdp.yaml", false }, /* what is common says little */
        { "gpt-j", "gpt2", false },
        { "foo.yaml", "bar.yaml", false },
        { "gpt3", "gpt2", true },          /* one edit */
        { "fspd.yml", "fsdp.yaml", true }, /* two, among five letters */
        { "doktro", "doctor", true },      /* two, among four */
        { "doktra", "doctor", false },     /* three of them */
        { "num_process", "num_processes", true },
        { "checkpointing", "checkpoint", true },
        { "fsdp_strategy", "fsdp_sharding_strategy", false }, /* too far all the same */
        { "exlpian", "explain", true },
        { "abcdef", "abcxyf", false },
        { "keep", "keep", true },
    };
    static const char *const both[] = { "test", "lisp" };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_ok((suggest_nearest(cases[i].word, &cases[i].name, 1) != NULL) ==
                   cases[i].alike,
               "'%s' %s a suggestion for '%s'", cases[i].name,
               cases[i].alike ? "is" : "is no", cases[i].word);
    tap_is_str(suggest_nearest("list", both, 2), "lisp", "the alike one of two");
}

static void test_units(void)
{
    char buf[32];

    tap_is_str(format_bytes(512, buf, sizeof(buf)), "512 B", "bytes");
    tap_is_str(format_bytes(1536, buf, sizeof(buf)), "1.5 KiB", "KiB");
    tap_is_str(format_bytes(31.2 * 1073741824.0, buf, sizeof(buf)), "31.2 GiB", "GiB");
    tap_is_str(format_count(41234, buf, sizeof(buf)), "41.2k", "thousands");
    tap_is_str(format_bytes(1023, buf, sizeof(buf)), "1023 B", "the last of B");
    tap_is_str(format_bytes(1024, buf, sizeof(buf)), "1.0 KiB", "the first of KiB");
    tap_is_str(format_bytes(1048576, buf, sizeof(buf)), "1.0 MiB", "the first of MiB");
    tap_is_str(format_bytes(0x1p60, buf, sizeof(buf)), "1024.0 PiB", "beyond the last");
    tap_is_str(format_count(999, buf, sizeof(buf)), "999", "below a thousand");
    tap_is_str(format_count(1000, buf, sizeof(buf)), "1.0k", "a thousand");
    tap_is_str(format_count(1e18, buf, sizeof(buf)), "1000000.0T", "beyond the last");
}

static void test_bf16(void)
{
    int wrong = 0;
    float back[7];
    bf16_t narrow[7];
    const float in[7] = {
        0.0f, -1.5f, 1.00390625f, 1.01171875f, 3.4e38f, INFINITY, NAN
    };

    for (uint32_t h = 0; h < 65536; h++) {
        float f = bf16_to_f32((bf16_t)h);

        if (!isnan(f) && f32_to_bf16(f) != h)
            wrong++;
    }
    tap_is_int(wrong, 0, "all bfloat16 values survive widening and narrowing");
    bf16_narrow(narrow, in, 7);
    bf16_widen(back, narrow, 7);
    tap_ok(back[1] == -1.5f && back[2] == 1.0f && back[3] == 1.015625f,
           "ties go to even");
    tap_ok(isinf(back[4]) && isinf(back[5]) && isnan(back[6]), "overflow, inf and NaN");
    tap_ok((f32_to_bf16(-NAN) & 0x8040) == 0x8040, "NaN keeps its sign and is quiet");
    wrong = 0;
    for (uint32_t h = 0; h < 0x7f80;
         h++) { /* both sides of the middle of two neighbours */
        uint32_t middle = h << 16 | 0x8000;
        float below, at, above;

        memcpy(&below, &(uint32_t){ middle - 1 }, 4);
        memcpy(&at, &middle, 4);
        memcpy(&above, &(uint32_t){ middle + 1 }, 4);
        wrong += f32_to_bf16(below) != h || f32_to_bf16(above) != h + 1 ||
                 f32_to_bf16(at) != h + (h & 1) ||
                 f32_to_bf16(-above) != (h + 1) + 0x8000;
    }
    tap_is_int(wrong, 0, "rounded to the nearest, ties to even");
    wrong = 0;
    for (uint32_t n = 0; n < 200; n++) { /* in place, of every length */
        float all[200];

        for (uint32_t i = 0; i < n; i++)
            all[i] = (float)i * 1.01f;
        bf16_narrow((bf16_t *)(void *)all, all, n);
        for (uint32_t i = 0; i < n; i++)
            wrong += ((bf16_t *)(void *)all)[i] != f32_to_bf16((float)i * 1.01f);
    }
    tap_is_int(wrong, 0, "narrowed in place");
}

static void *note_blocked(void *set)
{
    pthread_sigmask(SIG_SETMASK, NULL, set);
    return set;
}

/* Bit i - 1: signal i. */
static uint64_t blocked_in(const sigset_t *set)
{
    uint64_t bits = 0;

    for (int i = 1; i < SIGRTMIN; i++)
        bits |= (uint64_t)(sigismember(set, i) == 1) << (i - 1);
    return bits;
}

static void test_thread(void)
{
    const uint64_t never = UINT64_C(1) << (SIGKILL - 1) | UINT64_C(1) << (SIGSTOP - 1),
                   all = (UINT64_C(1) << 31) - 1;
    sigset_t ours, theirs, after;
    pthread_t thread;

    sigemptyset(&ours);
    sigaddset(&ours, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &ours, NULL);
    tap_is_int(thread_start(&thread, NULL, note_blocked, &theirs), 0,
               "a thread starts");
    pthread_join(thread, NULL);
    tap_is_int((int64_t)(blocked_in(&theirs) | never), (int64_t)all,
               "it takes no signal");
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    tap_is_int((int64_t)blocked_in(&after), (int64_t)blocked_in(&ours),
               "its maker takes what it took before");
    sigemptyset(&ours);
    pthread_sigmask(SIG_SETMASK, &ours, NULL);
}

int main(void)
{
    tap_is_int(accel_api_version(), ACCEL_API_VERSION,
               "the library is that of accel.h");
    test_errors();
    test_error_parts();
    test_statuses();
    test_report();
    test_log();
    test_strbuf();
    test_env();
    test_dtypes();
    test_suggest();
    test_alike();
    test_units();
    test_bf16();
    test_thread();
    return tap_done();
}
