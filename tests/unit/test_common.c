/* SPDX-License-Identifier: Apache-2.0
 *
 * common/: errors and exit codes, strings, did-you-mean, units, bfloat16.
 */
#include <math.h>
#include <stdlib.h>

#include "common/bf16.h"
#include "common/common.h"
#include "tests/tap.h"

static void test_errors(void)
{
    static const struct {
        accel_status_t status;
        int exit_code;
    } pinned[] = {
        { ACCEL_OK, 0 },       { ACCEL_EUSAGE, 64 },   { ACCEL_ECONFIG, 65 },
        { ACCEL_ENOENT, 66 },  { ACCEL_EUNAVAIL, 69 }, { ACCEL_EBUG, 70 },
        { ACCEL_EOS, 71 },     { ACCEL_ECREATE, 73 },  { ACCEL_EIO, 74 },
        { ACCEL_EPEER, 76 },   { ACCEL_EPERM, 77 },    { ACCEL_EPOLICY, 78 },
        { ACCEL_ERESUME, 85 },
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
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++)
        tap_is_str(suggest_nearest(cases[i].word, names, ACCEL_ARRAY_SIZE(names)),
                   cases[i].want, "did you mean for '%s'", cases[i].word);
}

static void test_units(void)
{
    char buf[32];

    tap_is_str(format_bytes(512, buf, sizeof(buf)), "512 B", "bytes");
    tap_is_str(format_bytes(1536, buf, sizeof(buf)), "1.5 KiB", "KiB");
    tap_is_str(format_bytes(31.2 * 1073741824.0, buf, sizeof(buf)), "31.2 GiB", "GiB");
    tap_is_str(format_count(41234, buf, sizeof(buf)), "41.2k", "thousands");
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
}

int main(void)
{
    test_errors();
    test_suggest();
    test_units();
    test_bf16();
    return tap_done();
}
