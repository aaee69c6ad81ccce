/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays to and from blocks whose numbers share a scale, one row of a table for each
 * format: those of the wire, and those that shards rest in. One thread. Every number is
 * computed alone, except for the largest one of its block, so neither threads nor the
 * vector width can change a bit. `omp simd`, because -O2 alone does not vectorise loops
 * with an unknown trip count.
 */
#include "numbers/block_formats.h"

#include "numbers/bf16.h"
#include "numbers/masters.h"

/* ---- numbers of one block -------------------------------------------------------- */

ACCEL_MULTIVERSION
static uint32_t largest_of(const float *restrict x, int64_t n)
{
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; i++) {
        const uint32_t u = wire_magnitude(x[i]);

        most = u > most ? u : most;
    }
    return most;
}

/* name: numbers times `by` become codes of a type, by an expression in `y`, which is
 * x[i] * by. */
#define NARROW(name, type, expression)                                                 \
    ACCEL_MULTIVERSION                                                                 \
    static void name(void *to, const float *restrict x, int64_t n, float by,           \
                     struct moment_key key, int64_t first)                             \
    {                                                                                  \
        type *restrict out = to;                                                       \
                                                                                       \
        (void)key, (void)first; /* rounding to the nearest has no draws */             \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                            \
        {                                                                              \
            const float y = x[i] * by;                                                 \
                                                                                       \
            (void)y;                                                                   \
            out[i] = (type)(expression);                                               \
        }                                                                              \
    }

/* The draw for x[i]: no block has elements on both sides of a multiple of 2^32. */
#define WORD moment_word(key, (uint32_t)first + (uint32_t)i, (uint32_t)(first >> 32))
/* A square above 0 keeps a code above 0, because the optimizer divides by it. */
#define LEAST moment_min(minifloat_bits(x[i]), 1)

NARROW(f16_out, f16_t, f32_to_f16(y))
NARROW(e4m3_out, f8_t, f32_to_e4m3(y))
NARROW(e5m2_out, f8_t, f32_to_e5m2(y))
NARROW(squares_out, f16_t, moment_max(f32_to_f16(y), LEAST))
NARROW(masters_out, f16_t, master_f16_of(y, WORD))
NARROW(m_out, f8_t, moment_e4m3_of(y, (WORD & 0xffffu) << 4))
NARROW(v_out, f16_t, moment_max(master_f16_of(y, WORD >> 16), LEAST))
NARROW(gradients_out, f8_t,
       gradient_code(x[i], by, (uint32_t)first + (uint32_t)i,
                     gradient_salt(first, key.low)))

#define WIDEN(name, type, widen)                                                       \
    ACCEL_MULTIVERSION                                                                 \
    static void name(float *restrict dst, const void *from, int64_t n, float by)       \
    {                                                                                  \
        const type *restrict in = from;                                                \
                                                                                       \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dst[i] =                   \
            widen(in[i]) * by;                                                         \
    }

WIDEN(f16_in, f16_t, f16_to_f32)
WIDEN(e4m3_in, f8_t, e4m3_to_f32)
WIDEN(e5m2_in, f8_t, e5m2_to_f32)

/* ---- the table ------------------------------------------------------------------- */

/* Codes of a type, its largest number, and how a block's numbers become codes. */
struct block_format {
    accel_dtype_t type;
    float largest;

    void (*narrow)(void *to, const float *x, int64_t n, float by, struct moment_key key,
                   int64_t first);
    void (*widen)(float *dst, const void *from, int64_t n, float by);
};

/* The rows of a rule, for each type that it has. */
static const struct block_format formats[][3] = {
    [SCALED_NEAREST] = { { ACCEL_F16, WIRE_LARGEST_F16, f16_out, f16_in },
                         { ACCEL_F8E4M3, WIRE_LARGEST_E4M3, e4m3_out, e4m3_in },
                         { ACCEL_F8E5M2, WIRE_LARGEST_E5M2, e5m2_out, e5m2_in } },
    [SCALED_SQUARES] = { { ACCEL_F16, WIRE_LARGEST_F16, squares_out, f16_in } },
    [SCALED_MASTERS] = { { ACCEL_F16, WIRE_LARGEST_F16, masters_out, f16_in } },
    [SCALED_STATE] = { { ACCEL_F16, WIRE_LARGEST_F16, v_out, f16_in },
                       { ACCEL_F8E4M3, WIRE_LARGEST_E4M3, m_out, e4m3_in } },
    [SCALED_GRADIENTS] = { { ACCEL_F8E4M3, WIRE_LARGEST_E4M3, gradients_out,
                             e4m3_in } },
};

static const struct block_format *format_of(enum scaled_rule rule, accel_dtype_t type)
{
    const struct block_format *f = formats[rule];

    while (f->type != type)
        f++;
    return f;
}

/* Writes the codes of a block and returns its scale's exponent. */
static uint32_t narrow_block(const struct block_format *f, void *to, const float *x,
                             int64_t n, struct moment_key key, int64_t first)
{
    const uint32_t exponent = wire_exponent(largest_of(x, n), f->largest);

    f->narrow(to, x, n, wire_inverse(exponent), key, first);
    return exponent;
}

/* Numbers in the block that begins at `at`: the last one may be shorter. */
static int64_t block_length(int64_t n, int64_t at, int64_t block)
{
    return n - at < block ? n - at : block;
}

/* ---- a scale before each 128 numbers --------------------------------------------- */

static const struct moment_key no_draws;

/* Builds each block in a local array and copies it, because in place its first bytes
 * lie on numbers that are still to be read. */
void wire_narrow(void *blocks, const float *src, size_t n, accel_dtype_t t)
{
    const struct block_format *f = format_of(SCALED_NEAREST, t);
    char *to = blocks;

    for (int64_t at = 0; at < (int64_t)n; at += WIRE_BLOCK) {
        const int64_t length = block_length((int64_t)n, at, WIRE_BLOCK);
        const size_t bytes = wire_bytes((size_t)length, t);
        uint32_t block[1 + WIRE_BLOCK * sizeof(f16_t) / 4];
        float scale;

        block[bytes / 4 - 1] = 0; /* the padding */
        scale = wire_scale(narrow_block(f, block + 1, src + at, length, no_draws, 0));
        memcpy(block, &scale, sizeof(scale));
        memcpy(to, block, bytes);
        to += bytes;
    }
}

void wire_widen(float *dst, const void *blocks, size_t n, accel_dtype_t t)
{
    const struct block_format *f = format_of(SCALED_NEAREST, t);
    const char *from = blocks;

    for (int64_t at = 0; at < (int64_t)n; at += WIRE_BLOCK) {
        const int64_t length = block_length((int64_t)n, at, WIRE_BLOCK);
        float scale;

        memcpy(&scale, from, sizeof(scale));
        f->widen(dst + at, from + WIRE_HEAD, length, scale);
        from += wire_bytes((size_t)length, t);
    }
}

/* ---- a byte for each 32, apart --------------------------------------------------- */

void scaled_widen(float *dst, struct scaled src, int64_t at, int64_t n)
{
    const struct block_format *f = format_of(SCALED_NEAREST, src.type);
    const char *data = src.data;
    const int64_t size = (int64_t)accel_dtype_bytes(src.type);

    for (int64_t i = at, length; i < at + n; i += length, dst += length) {
        const float by = wire_scale(src.exponent[i / SCALED_BLOCK]);

        length = block_length(at + n, i, SCALED_BLOCK - i % SCALED_BLOCK);
        f->widen(dst, data + i * size, length, by);
    }
}

void scaled_narrow_by(struct scaled dst, const float *src, int64_t n,
                      enum scaled_rule rule, struct moment_key key, int64_t first)
{
    const struct block_format *f = format_of(rule, dst.type);
    const int64_t size = (int64_t)accel_dtype_bytes(dst.type);
    char *data = dst.data;

    for (int64_t i = 0; i < n; i += SCALED_BLOCK)
        dst.exponent[i / SCALED_BLOCK] =
            (uint8_t)narrow_block(f, data + i * size, src + i,
                                  block_length(n, i, SCALED_BLOCK), key, first + i);
}

void scaled_narrow(struct scaled dst, const float *src, int64_t n)
{
    scaled_narrow_by(dst, src, n, SCALED_NEAREST, no_draws, 0);
}
