/* SPDX-License-Identifier: Apache-2.0
 *
 * The stand-in CUDA toolkit: cublasLt's products and epilogues against plain loops, and what
 * it refuses.
 */
#include "tests/unit/emulator.h"

#include <cublasLt.h>
#include <math.h>

enum { ROWS = 5, COLS = 3, DEPTH = 4, AUX_LD = 8 };

static cublasLtHandle_t handle;
static cublasLtMatmulDesc_t desc;
static cublasLtMatrixLayout_t la, lb, ld;
static float *da, *db, *dd, *dbias, *daux;
static float x[ROWS * DEPTH], y[DEPTH * COLS], bias[ROWS], aux[AUX_LD * COLS];

static float value(int i)
{
    return (float)((i * 7) % 11 - 5) / 4;
}

static float *to_device(const float *from, size_t count)
{
    float *p;

    cudaMalloc(&p, count * sizeof(*p));
    cudaMemcpyAsync(p, from, count * sizeof(*p), cudaMemcpyHostToDevice, one);
    return p;
}

template <typename T> static void set(cublasLtMatmulDescAttributes_t what, T value)
{
    cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof(value));
}

/* a is stored [DEPTH][ROWS], so in columns; transposed: its columns are the other way. */
static void prepare(int32_t trans, uint32_t epilogue)
{
    begin();
    for (int i = 0; i < ROWS * DEPTH; i++)
        x[i] = value(i);
    for (int i = 0; i < DEPTH * COLS; i++)
        y[i] = value(i + 3);
    for (int i = 0; i < ROWS; i++)
        bias[i] = value(i + 5);
    for (int i = 0; i < AUX_LD * COLS; i++)
        aux[i] = value(i + 1);
    da = to_device(x, ROWS * DEPTH);
    db = to_device(y, DEPTH * COLS);
    dbias = to_device(bias, ROWS);
    daux = to_device(aux, AUX_LD * COLS);
    cudaMalloc(&dd, ROWS * COLS * sizeof(float));
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, trans);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, dbias);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, daux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)AUX_LD);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, trans ? DEPTH : ROWS,
                               trans ? ROWS : DEPTH, trans ? DEPTH : ROWS);
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, DEPTH, COLS, DEPTH);
    cublasLtMatrixLayoutCreate(&ld, CUDA_R_32F, ROWS, COLS, ROWS);
}

static void drop_product(void)
{
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(ld);
    cublasLtMatmulDescDestroy(desc);
}

static void finish(void)
{
    drop_product();
    cublasLtDestroy(handle);
}

static cublasStatus_t multiply(const cublasLtMatmulAlgo_t *algo, const float *from)
{
    const float by = 1, zero = 0;

    return cublasLtMatmul(handle, desc, &by, from, la, db, lb, &zero, dd, ld, dd, ld,
                          algo, NULL, 0, one);
}

static double product(int32_t trans, int i, int j)
{
    double sum = 0;

    for (int k = 0; k < DEPTH; k++)
        sum += (double)x[trans ? i * DEPTH + k : k * ROWS + i] * y[j * DEPTH + k];
    return sum;
}

static double gelu(double v)
{
    return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

/* What d should be, from the product and the arrays. */
static double expected(uint32_t epilogue, int32_t trans, int i, int j)
{
    double v = product(trans, i, j), in = aux[j * AUX_LD + i], h = 1e-5;

    if (epilogue & CUBLASLT_EPILOGUE_BIAS)
        v += bias[i];
    if (epilogue & CUBLASLT_EPILOGUE_RELU)
        v = v > 0 ? v : 0;
    if (epilogue & CUBLASLT_EPILOGUE_GELU)
        v = gelu(v);
    if ((epilogue & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU)
        v *= (gelu(in + h) - gelu(in - h)) / (2 * h);
    return v;
}

static void test_epilogue(uint32_t epilogue, int32_t trans)
{
    float got[ROWS * COLS];
    double worst = 0;

    prepare(trans, epilogue);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_SUCCESS, "epilogue %u", epilogue);
    cudaMemcpyAsync(got, dd, sizeof(got), cudaMemcpyDeviceToHost, one);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            worst =
                fmax(worst, fabs(got[j * ROWS + i] - expected(epilogue, trans, i, j)));
    tap_ok(worst < 1e-5, "epilogue %u, trans %d: within %g", epilogue, trans, worst);
    finish();
}

/* What else they leave: the value before the activation, gradients of the bias. */
static void test_leavings(void)
{
    double sum = 0;

    prepare(0, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    multiply(NULL, da);
    tap_is_close(fetch(daux + AUX_LD + 2), product(0, 2, 1) + bias[2], 1e-6,
                 "value before the activation");
    finish();
    prepare(0, CUBLASLT_EPILOGUE_DGELU_BGRAD);
    multiply(NULL, da);
    for (int j = 0; j < COLS; j++)
        sum += expected(CUBLASLT_EPILOGUE_DGELU_BGRAD, 0, 3, j);
    tap_is_close(fetch(dbias + 3), sum, 1e-5, "gradient of the bias: over the columns");
    finish();
    prepare(0, CUBLASLT_EPILOGUE_BGRADA);
    multiply(NULL, da);
    sum = 0;
    for (int k = 0; k < DEPTH; k++)
        sum += x[k * ROWS + 4];
    tap_is_close(fetch(dbias + 4), sum, 1e-6, "... of a: over k");
    finish();
    prepare(0, CUBLASLT_EPILOGUE_BGRADB);
    multiply(NULL, da);
    sum = 0;
    for (int k = 0; k < DEPTH; k++)
        sum += y[2 * DEPTH + k];
    tap_is_close(fetch(dbias + 2), sum, 1e-6, "... of b: over k");
    finish();
}

/* An algorithm serves the product it was found for, where pointers are as aligned. */
static void test_algorithms(void)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t results[4];
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    int found = 0;

    prepare(0, CUBLASLT_EPILOGUE_BIAS);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 4, results,
                                   &found);
    tap_is_int(found, 1, "without workspace there is one");
    tap_is_int(multiply(&results[0].algo, da), CUBLAS_STATUS_SUCCESS, "it works");
    tap_is_int(multiply(&results[0].algo, da + 1), CUBLAS_STATUS_INVALID_VALUE,
               "a matrix that leaves its memory");
    tap_is_int(multiply(&results[0].algo, a + 1), CUBLAS_STATUS_NOT_SUPPORTED,
               "less aligned than was said");
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    tap_is_int(multiply(&results[0].algo, da), CUBLAS_STATUS_NOT_SUPPORTED,
               "another product");
    tap_is_int(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                              &epilogue, 8),
               CUBLAS_STATUS_INVALID_VALUE, "an attribute of the wrong size");
    cublasLtMatmulPreferenceDestroy(preference);
    finish();
}

static int algorithms(void)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;

    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 1, &result,
                                   &found);
    cublasLtMatmulPreferenceDestroy(preference);
    return found;
}

static void set_aux(float *at, int64_t pitch)
{
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, at);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, pitch);
}

/* What an epilogue of the backward asks of its matrix and its vector. */
static void test_backward(void)
{
    int32_t narrow = CUDA_R_16BF;
    float *end;

    prepare(0, CUBLASLT_EPILOGUE_DGELU);
    tap_is_int(algorithms(), 1, "the slope of GELU has an algorithm");
    set_aux(daux, 12);
    tap_is_int(algorithms(), 0, "not for rows of 12 elements");
    set_aux(daux, 0);
    tap_is_int(algorithms(), 0, "nor for rows shorter than d's");
    set_aux(daux + 1, AUX_LD);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_INVALID_VALUE,
               "the matrix begins at a multiple of 16 bytes");
    set_aux(daux + AUX_LD, AUX_LD);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_INVALID_VALUE, "and has all of d's");
    set_aux(daux, AUX_LD);
    setenv("FAKE_CUDA_NO_EPILOGUES", "512,192", 1);
    tap_is_int(algorithms(), 0, "nor where the machine has none");
    unsetenv("FAKE_CUDA_NO_EPILOGUES");
    finish();
    prepare(0, CUBLASLT_EPILOGUE_BGRADB);
    tap_is_int(algorithms(), 1, "sums of b have an algorithm");
    end = dbias + ROWS - COLS + 1;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, end);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_INVALID_VALUE,
               "they need room for d's columns");
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, narrow);
    tap_is_int(algorithms(), 0, "and are of d's type");
    finish();
}

/* Algorithms of a product of 8-bit floats [32, cols] to bfloat16, or float32. */
static int fp8_algorithms(int cols, int32_t a_mode, int32_t b_mode, uint32_t epilogue,
                          bool wide)
{
    const int32_t trans = CUBLAS_OP_T, narrow = CUDA_R_16BF;
    const int64_t pitch = 32;
    int found;

    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, trans);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, pitch);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, narrow);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, a_mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, b_mode);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_8F_E4M3, 64, 32, 64);
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_8F_E4M3, 64, (uint64_t)cols, 64);
    cublasLtMatrixLayoutCreate(&ld, wide ? CUDA_R_32F : CUDA_R_16BF, 32, (uint64_t)cols,
                               32);
    found = algorithms();
    drop_product();
    return found;
}

/* What 9.0 has of 8-bit floats: numbers of lines, epilogues, and what a variable takes
 * away. */
static void test_fp8(void)
{
    const int32_t one = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                  lines = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                  squares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const struct {
        int32_t a_mode, b_mode;
        int cols;
        uint32_t epilogue;
        bool wide;
        const char *variable, *value;
        int found;
        const char *name;
    } t[] = {
        { one, one, 21, 1, false, NULL, NULL, 1, "one scale: any number of columns" },
        { squares, lines, 24, 1, false, NULL, NULL, 1, "scales of lines: 24 columns" },
        { squares, lines, 21, 1, false, NULL, NULL, 0, "... not 21" },
        { squares, lines, 20, 1, false, NULL, NULL, 0, "... nor 20" },
        { squares, lines, 24, 36, false, NULL, NULL, 0, "... nor GELU" },
        { one, one, 16, 36, false, NULL, NULL, 1, "GELU" },
        { one, one, 16, 164, false, NULL, NULL, 1, "GELU, saved" },
        { one, one, 16, 192, false, NULL, NULL, 1, "its slope" },
        { one, one, 16, 512, false, NULL, NULL, 0, "no sums" },
        { one, one, 16, 36, true, NULL, NULL, 0, "no GELU to float32" },
        { one, one, 16, 164, false, "FAKE_CUDA_NO_FP8_EPILOGUES", "160,164", 0,
          "not saved" },
        { one, one, 16, 36, false, "FAKE_CUDA_NO_FP8_EPILOGUES", "160,164", 1,
          "as it is without" },
        { one, one, 16, 1, false, "FAKE_CUDA_NO_TYPES", "29,28", 0, "no such type" },
    };

    begin();
    cublasLtCreate(&handle);
    for (const auto &c : t) {
        if (c.variable)
            setenv(c.variable, c.value, 1);
        tap_is_int(fp8_algorithms(c.cols, c.a_mode, c.b_mode, c.epilogue, c.wide) > 0,
                   c.found, "8 bits, %s", c.name);
        if (c.variable)
            unsetenv(c.variable);
    }
    cublasLtDestroy(handle);
}

/* The status of a refusal. */
static void test_refusal(void)
{
    prepare(0, CUBLASLT_EPILOGUE_BIAS);
    setenv("FAKE_CUDA_REFUSE_EPILOGUES", "4", 1);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_NOT_SUPPORTED, "refused");
    setenv("FAKE_CUDA_REFUSAL", "7", 1);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_INVALID_VALUE, "refused as invalid");
    unsetenv("FAKE_CUDA_REFUSE_EPILOGUES");
    setenv("FAKE_CUDA_REFUSE_TYPES", "0", 1);
    tap_is_int(multiply(NULL, da), CUBLAS_STATUS_INVALID_VALUE, "a type, too");
    unsetenv("FAKE_CUDA_REFUSE_TYPES");
    unsetenv("FAKE_CUDA_REFUSAL");
    finish();
}

int main(void)
{
    static const uint32_t epilogues[] = {
        CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
        CUBLASLT_EPILOGUE_RELU,     CUBLASLT_EPILOGUE_RELU_BIAS,
        CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB,
    };

    for (uint32_t epilogue : epilogues)
        for (int32_t trans = 0; trans < 2; trans++)
            test_epilogue(epilogue, trans);
    test_leavings();
    test_algorithms();
    test_backward();
    test_fp8();
    test_refusal();
    fakecuda_reset();
    return tap_done();
}
