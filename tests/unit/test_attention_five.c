/* SPDX-License-Identifier: Apache-2.0
 *
 * When the attention's backward makes five products: the count beside numbers worked
 * out by hand, the parts that fit a workspace, and calls that must keep their order.
 * No device.
 */
#include "backend/cuda/attention/attention_five.h"
#include "tests/tap.h"

enum { SMS = 132 };

static const int64_t workspace = (int64_t)1280 << 20;

static struct attention call(int64_t batch, int64_t time, int64_t heads,
                             int64_t kv_heads, int64_t width)
{
    struct attention p = { 0 };

    p.type = ACCEL_BF16;
    p.batch = batch;
    p.queries = p.keys = time;
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.head_width = width;
    p.causal = true;
    return p;
}

static bool near(double a, double b)
{
    return a > b * 0.999 && a < b * 1.001;
}

/* Per pair, in picoseconds on an H100. The 14 instructions of a score take 0.453, less
 * than its products: dq of seven by wgmma 0.6 and 1.2 (heads of 64 and 128), by
 * mma.sync 0.646 and 1.293; dk and dv 0.8, 1.6, 0.862, 1.724. dq of five takes 0.597
 * for its 2 bytes. With dropout a score has 42 instructions, 1.359. */
static void test_count(void)
{
    static const struct {
        int64_t width;
        bool wgmma;
        float dropout;
        double seven, five;
    } rows[] = {
        { 64, false, 0, 1.5084, 1.4590 },    { 40, false, 0, 1.5084, 1.4590 },
        { 128, false, 0, 3.0168, 2.3208 },   { 64, true, 0, 1.4000, 1.3970 },
        { 128, true, 0, 2.8000, 2.1970 },    { 64, true, 0.1f, 2.7184, 1.9562 },
        { 128, false, 0.1f, 3.0831, 2.3208 }
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        /* blocks that fill the device 8 times, so that nothing is rounded up */
        struct attention p = call(2 * SMS, 64 * 8, 1, 1, rows[i].width);
        const struct five_device d = { SMS, rows[i].wgmma };
        const char *how = rows[i].wgmma ? ", wgmma" : "";
        const double pairs = five_pairs(&p), launches = 2 * FIVE_LAUNCH_US;
        double seven, five;

        p.dropout = rows[i].dropout;
        seven = (five_seven_us(&p, &d) - launches) / pairs * 1e6;
        five = (five_us(&p, attn_unsplit(&p), &d) - launches) / pairs * 1e6;
        tap_ok(near(seven, rows[i].seven), "width %lld%s, seven: %g ps a pair",
               (long long)rows[i].width, how, seven);
        tap_ok(near(five, rows[i].five), "width %lld%s, five: %g ps a pair",
               (long long)rows[i].width, how, five);
        tap_ok(attn_five_pays(&p, attn_unsplit(&p), &d) == (five < seven),
               "the smaller one is taken");
    }
}

static void test_pairs(void)
{
    struct attention p = call(2, 100, 3, 3, 64);

    tap_ok(near(five_pairs(&p), 2 * 3 * 5050), "causal: half, and the diagonal");
    p.keys = 140;
    p.offset = 40;
    tap_ok(near(five_pairs(&p), 2 * 3 * (5050 + 4000)), "behind a cache of 40");
    p.causal = false;
    tap_ok(near(five_pairs(&p), 2 * 3 * 14000), "all of them");
}

/* The shapes of the first trial, in an H100's workspace and a smaller one. */
static void test_parts(void)
{
    static const struct {
        const char *name;
        int64_t batch, time, heads, kv_heads, width, most;
        bool fits, pays;
        int64_t parts;
    } rows[] = {
        { "GPT-2", 32, 1024, 12, 12, 64, 1280, true, true, 1 },
        { "GPT-2 XL", 8, 1024, 25, 25, 64, 1280, true, true, 1 },
        { "Llama-8B", 1, 2048, 32, 8, 128, 1280, true, true, 1 },
        { "Llama-8B", 1, 8192, 32, 8, 128, 1280, true, true, 4 },
        /* a key head and its four are 537 MB, and 128 blocks for 264 places */
        { "Llama-8B, 48 GB", 1, 8192, 32, 8, 128, 720, true, false, 8 },
        { "Llama-8B, 24 GB", 1, 8192, 32, 8, 128, 376, false, false, 0 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct attention p = call(rows[i].batch, rows[i].time, rows[i].heads,
                                  rows[i].kv_heads, rows[i].width);
        struct attention_grads g = { 0 };
        const struct five_device d = { SMS, false };
        struct attn_split s = { 0, 0 };
        static char dq, dk;
        bool fits;

        g.dq.data = &dq;
        g.dk.data = &dk;
        fits = attn_five_fits(&p, &g, rows[i].most << 20, &s);
        tap_ok(fits == rows[i].fits, "%s in %lld MiB: %s", rows[i].name,
               (long long)rows[i].most, fits ? "fits" : "does not fit");
        if (!fits)
            continue;
        tap_is_int(attn_parts(&p, s), rows[i].parts, "%s: parts", rows[i].name);
        tap_ok(attn_five_pays(&p, s, &d) == rows[i].pays, "%s: five %g us, seven %g",
               rows[i].name, five_us(&p, s, &d), five_seven_us(&p, &d));
        tap_ok(five_bytes(&p, s) <= rows[i].most << 20, "%s: within the workspace",
               rows[i].name);
    }
}

/* dq, dk and dv of one tensor are added up in this order; five products make dq
 * last. */
static void test_order(void)
{
    static char memory[3];
    struct attention p = call(1, 128, 2, 2, 64);
    struct attention_grads g = { 0 };
    struct attn_split s;

    g.dq.data = memory;
    tap_ok(!attn_five_fits(&p, &g, workspace, &s), "dq alone: no scores are kept");
    g.dv.data = memory + 1;
    tap_ok(attn_five_fits(&p, &g, workspace, &s), "dq and dv");
    g.dk.data = memory + 2;
    tap_ok(attn_five_fits(&p, &g, workspace, &s), "all three");
    g.dq.data = NULL;
    tap_ok(!attn_five_fits(&p, &g, workspace, &s), "no dq");
    g.dq.data = g.dk.data;
    tap_ok(!attn_five_fits(&p, &g, workspace, &s), "dq and dk of one tensor");
    g.dq.data = g.dv.data;
    tap_ok(!attn_five_fits(&p, &g, workspace, &s), "dq and dv of one tensor");
}

/* A call without one of these has nothing to keep. */
static void test_empty(void)
{
    static char memory[3];
    static const struct {
        int64_t batch, queries, keys;
        bool fits;
    } rows[] = {
        { 1, 1, 1, true },  { 0, 1, 1, false }, { 1, 0, 1, false }, { 1, 1, 0, false },
        { 0, 0, 1, false }, { 0, 1, 0, false }, { 1, 0, 0, false }, { 0, 0, 0, false },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        struct attention p = call(rows[i].batch, rows[i].queries, 2, 2, 64);
        struct attention_grads g = { 0 };
        struct attn_split s;

        p.keys = rows[i].keys;
        g.dq.data = memory;
        g.dk.data = memory + 1;
        g.dv.data = memory + 2;
        tap_ok(attn_five_fits(&p, &g, workspace, &s) == rows[i].fits,
               "%lld samples, %lld queries, %lld keys", (long long)p.batch,
               (long long)p.queries, (long long)p.keys);
    }
}

static void test_names(void)
{
    static const struct {
        const char *list;
        unsigned forms;
    } rows[] = {
        { NULL, 0 },
        { "", 0 },
        { "fast", 0 },
        { "ow", 0 },
        { "own", ATTN_OWN },
        { "mma", ATTN_SYNC },
        { "five", ATTN_FIVE },
        { "seven", ATTN_SEVEN },
        { "mma,five", ATTN_SYNC | ATTN_FIVE },
        { "seven,,fast,mma,", ATTN_SEVEN | ATTN_SYNC },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++)
        tap_is_int(attn_forms_named(rows[i].list), rows[i].forms, "forms: %s",
                   rows[i].list ? rows[i].list : "none");
}

int main(void)
{
    test_pairs();
    test_count();
    test_parts();
    test_order();
    test_empty();
    test_names();
    return tap_done();
}
