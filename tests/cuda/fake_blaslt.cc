/* SPDX-License-Identifier: Apache-2.0
 *
 * cublasLt's calls: descriptors, what may be multiplied, and the choice of an algorithm. An
 * algorithm remembers what it was chosen for, and is refused for anything else.
 */
#include "fake_blaslt.h"

#include <stdlib.h>
#include <string.h>

#include "fakecuda.h"

enum { AUX = 128, BIAS = 4, GELUS = 32 | 64, BGRADS = 16 | 256 | 512 };
static const size_t big_workspace = 1 << 20;

/* ---- what may be multiplied ------------------------------------------------------------- */

static bool is_fp8(int32_t type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static int64_t size_of(int32_t type)
{
    return is_fp8(type) ? 1 : type == CUDA_R_32F ? 4 : 2;
}

static bool is_layout(const cublasLtMatrixLayoutOpaque_t *l)
{
    return (l->type == CUDA_R_32F || l->type == CUDA_R_16BF || l->type == CUDA_R_16F ||
            is_fp8(l->type)) &&
           l->rows > 0 && l->cols > 0 && l->ld >= (int64_t)l->rows;
}

static bool is_epilogue(uint32_t e)
{
    static const uint32_t all[] = {
        CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_RELU,
        CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_RELU_BIAS,
        CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD,
        CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB,
    };

    for (uint32_t known : all)
        if (e == known)
            return true;
    return false;
}

/* A library that has no kernel for some epilogues or types, or refuses them when they are to
 * run: variables list their numbers. */
static bool is_listed(const char *variable, uint32_t number)
{
    const char *list = getenv(variable);
    char *end;

    while (list && *list) {
        if (strtoul(list, &end, 10) == number && end != list)
            return true;
        list = end + (*end != '\0');
    }
    return false;
}

/* How what is listed is refused. */
static cublasStatus_t refusal(void)
{
    const char *status = getenv("FAKE_CUDA_REFUSAL");

    return status ? (cublasStatus_t)atoi(status) : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* A bias is never float32, not beside float32 results either; nor is what a GELU saves.
 * Beside scales of blocks nothing but a bias is documented. */
static bool is_fp8_epilogue(const struct product *p)
{
    const cublasLtMatmulDescOpaque_t *e = &p->desc;
    const int32_t narrow = p->d_layout.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
    const bool blocks = e->a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;

    if (e->epilogue & ~(BIAS | GELUS | AUX) || (blocks && e->epilogue != BIAS) ||
        is_listed("FAKE_CUDA_NO_FP8_EPILOGUES", e->epilogue))
        return false;
    return (!(e->epilogue & BIAS) || e->bias_type == narrow) &&
           (!(e->epilogue & GELUS) || p->d_layout.type == narrow);
}

static cublasStatus_t check_epilogue(const struct product *p)
{
    const cublasLtMatmulDescOpaque_t *e = &p->desc;

    if (!is_epilogue(e->epilogue))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (e->epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_SUCCESS;
    if (is_listed("FAKE_CUDA_NO_EPILOGUES", e->epilogue))
        return refusal();
    if (is_fp8(p->a_layout.type) && !is_fp8_epilogue(p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!is_fp8(p->a_layout.type) && (e->epilogue & (BIAS | BGRADS)) &&
        e->bias_type != p->d_layout.type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!(e->epilogue & AUX))
        return CUBLAS_STATUS_SUCCESS;
    return e->aux_ld < (int64_t)p->d_layout.rows || e->aux_ld % 8 ||
                   e->aux_type != p->d_layout.type
               ? CUBLAS_STATUS_NOT_SUPPORTED
               : CUBLAS_STATUS_SUCCESS;
}

/* Rows and their distance: multiples of 16. */
static bool is_fp8_whole(const cublasLtMatrixLayoutOpaque_t *l)
{
    return l->rows % 16 == 0 && l->ld % 16 == 0;
}

/* Scales of blocks: of both operands and without fast sums. On 9.0 those of 128, which
 * are not both square, on 10.x those of 32. */
static bool are_blocks(const struct product *p)
{
    const int32_t a = p->desc.a_mode, b = p->desc.b_mode;

    if (a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
        b == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F)
        return true;
    if (a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0)
        return fake.capability / 10 == 10 && !p->desc.fast && a == b;
    return fake.capability == 90 && !p->desc.fast &&
           b != CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 &&
           a != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
           b != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
           (a == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
            b == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
}

/* The table of 8-bit floats: types, layouts, sizes. The columns of d are free, unless b has
 * scales of lines: Transformer Engine asks for a multiple of 8 of those. */
static bool is_fp8_product(const struct product *p, bool ta, bool tb)
{
    const cublasLtMatrixLayoutOpaque_t *a = &p->a_layout, *b = &p->b_layout;
    const cublasLtMatrixLayoutOpaque_t *d = &p->d_layout;
    const bool any = fake.capability / 10 == 10;
    const bool transposed = fake.capability == 89 || fake.capability / 10 == 9 ||
                            fake.capability / 10 == 12;

    return is_fp8(b->type) && are_blocks(p) &&
           (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) &&
           (any || (transposed && ta && !tb)) && !is_fp8(d->type) && is_fp8_whole(a) &&
           is_fp8_whole(b) &&
           (p->desc.b_mode != CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
            d->cols % 8 == 0) &&
           (ta ? a->cols : a->rows) % 16 == 0 && (ta ? a->rows : a->cols) % 16 == 0 &&
           d->ld * size_of(d->type) % 16 == 0;
}

/* Operands of 8 bit follow rules of their own. */
static bool are_types(const struct product *p, bool ta, bool tb)
{
    const int32_t a = p->a_layout.type, b = p->b_layout.type, d = p->d_layout.type;

    if (is_fp8(a) || is_fp8(b))
        return is_fp8_product(p, ta, tb);
    return a == b && !is_fp8(d) && (a != CUDA_R_32F || d == CUDA_R_32F) &&
           !p->desc.a_scale && !p->desc.b_scale;
}

cublasStatus_t fake_product_check(const struct product *p)
{
    const cublasLtMatrixLayoutOpaque_t *a = &p->a_layout, *b = &p->b_layout;
    const cublasLtMatrixLayoutOpaque_t *c = &p->c_layout, *d = &p->d_layout;
    bool ta = p->desc.trans_a != CUBLAS_OP_N, tb = p->desc.trans_b != CUBLAS_OP_N;

    if (!is_layout(a) || !is_layout(b) || !is_layout(c) || !is_layout(d))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((ta ? a->cols : a->rows) != d->rows || (tb ? b->rows : b->cols) != d->cols ||
        (ta ? a->rows : a->cols) != (tb ? b->cols : b->rows) || c->rows != d->rows ||
        c->cols != d->cols)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->desc.scale != CUDA_R_32F || p->desc.compute != CUBLAS_COMPUTE_32F ||
        c->type != d->type || !are_types(p, ta, tb))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_listed("FAKE_CUDA_NO_TYPES", (uint32_t)a->type) ||
        is_listed("FAKE_CUDA_NO_TYPES", (uint32_t)b->type))
        return refusal();
    return check_epilogue(p);
}

/* The types of bias and aux are that of d unless set. */
static void fill_types(struct product *p)
{
    if (p->desc.bias_type < 0)
        p->desc.bias_type = is_fp8(p->a_layout.type) && p->d_layout.type == CUDA_R_32F
                                ? CUDA_R_16BF
                                : p->d_layout.type;
    if (p->desc.aux_type < 0)
        p->desc.aux_type = p->d_layout.type;
}

/* ---- algorithms ------------------------------------------------------------------------- */

/* ALGO_VECTORS: how the bias and, in the upper half, the auxiliary matrix are aligned. */
enum { ALGO_ID, ALGO_KEY, ALGO_WORKSPACE, ALGO_ALIGNMENT, ALGO_VECTORS = 7 };

static uint64_t key_of(const struct product *p)
{
    const int32_t parts[] = {
        p->a_layout.type,
        p->b_layout.type,
        p->d_layout.type,
        p->desc.compute,
        p->desc.trans_a,
        p->desc.trans_b,
        (int32_t)p->desc.epilogue,
        p->desc.bias_type,
        (int32_t)p->d_layout.rows,
        (int32_t)p->d_layout.cols,
        p->desc.fast,
        p->desc.a_mode,
        p->desc.b_mode,
    };
    uint64_t key = 1469598103934665603u;

    for (int32_t part : parts)
        key = (key ^ (uint32_t)part) * 1099511628211u;
    return key;
}

/* The largest power of two, up to the 16 bytes of one load, that the address is a multiple
 * of. */
static uint64_t alignment_of(const void *p)
{
    uintptr_t at = (uintptr_t)p | 16;

    return at & -at;
}

/* The documentation: the choice of an algorithm goes by the values of these pointers. */
static uint64_t vectors_of(const struct product *p)
{
    uint32_t e = p->desc.epilogue;

    return (e & (BIAS | BGRADS) ? alignment_of(p->desc.bias) : 1) |
           (e & AUX ? alignment_of(p->desc.aux) : 1) << 32;
}

static bool is_aligned(const struct product *p, const cublasLtMatmulAlgo_t *algo)
{
    const void *all[] = { p->a, p->b, p->beta != 0 ? p->c : p->d, p->d };
    uint64_t vectors = vectors_of(p), wanted = algo->data[ALGO_VECTORS];

    if ((uint32_t)vectors < (uint32_t)wanted || vectors >> 32 < wanted >> 32)
        return false;

    for (int i = 0; i < 4; i++)
        if ((uintptr_t)all[i] % algo->data[ALGO_ALIGNMENT + i])
            return false;
    return true;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t *results, int *found)
{
    fake_lock hold(fake.lock);
    struct product p = { *desc, *a, *b, *c, *d, NULL, NULL, NULL, NULL, 1, 0 };
    cublasStatus_t status;

    fake.counts.heuristics++;
    *found = 0;
    if (!handle || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    fill_types(&p);
    status = fake_product_check(&p);
    for (uint64_t id = 0; !status && id < 2 && *found < wanted; id++) {
        cublasLtMatmulHeuristicResult_t *r = &results[*found];

        if (id == 0 && preference->workspace < big_workspace)
            continue;
        memset(r, 0, sizeof(*r));
        r->workspaceSize = id == 0 ? big_workspace : 0;
        r->wavesCount = 1;
        r->algo.data[ALGO_ID] = id + 1;
        r->algo.data[ALGO_KEY] = key_of(&p);
        r->algo.data[ALGO_WORKSPACE] = r->workspaceSize;
        for (int i = 0; i < 4; i++)
            r->algo.data[ALGO_ALIGNMENT + i] = preference->alignment[i];
        r->algo.data[ALGO_VECTORS] = vectors_of(&p);
        (*found)++;
    }
    return status;
}

/* ---- the product ------------------------------------------------------------------------ */

static bool lies_on_device(const void *p, const cublasLtMatrixLayoutOpaque_t *l)
{
    uint64_t elems = (l->cols - 1) * (uint64_t)l->ld + l->rows;

    return fake_on_device(p, elems * (uint64_t)size_of(l->type));
}

static size_t bytes_of(int32_t type, int64_t elems)
{
    return (size_t)(elems * size_of(type));
}

/* A bias, or what the gradient of one is written to: of d's columns where b is summed. */
static bool bias_lies_on_device(const struct product *p)
{
    const cublasLtMatmulDescOpaque_t *e = &p->desc;
    uint64_t elems =
        e->epilogue == CUBLASLT_EPILOGUE_BGRADB ? p->d_layout.cols : p->d_layout.rows;

    return fake_on_device(e->bias, bytes_of(e->bias_type, (int64_t)elems));
}

static bool aux_lies_on_device(const struct product *p)
{
    const cublasLtMatmulDescOpaque_t *e = &p->desc;
    int64_t elems =
        ((int64_t)p->d_layout.cols - 1) * e->aux_ld + (int64_t)p->d_layout.rows;

    return (uintptr_t)e->aux % 16 == 0 &&
           fake_on_device(e->aux, bytes_of(e->aux_type, elems));
}

/* All scales of an operand; down: its columns are lines of k numbers. Those of blocks are
 * needed, and begin at 16 bytes. */
static bool scales_lie_on_device(const void *s, int32_t mode,
                                 const cublasLtMatrixLayoutOpaque_t *l, bool down)
{
    const bool blocks = mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    const int64_t k = (int64_t)(down ? l->rows : l->cols);
    const int64_t lines = (int64_t)(down ? l->cols : l->rows);

    return s ? (uintptr_t)s % (blocks ? 16 : sizeof(float)) == 0 &&
                   fake_on_device(s, (size_t)fake_scale_bytes(mode, k, lines))
             : !blocks;
}

/* Scales of the device, and addresses that tensor cores take. */
static bool fp8_lies_on_device(const struct product *p)
{
    const void *matrix[] = { p->a, p->b, p->d };

    if (!scales_lie_on_device(p->desc.a_scale, p->desc.a_mode, &p->a_layout,
                              p->desc.trans_a != CUBLAS_OP_N) ||
        !scales_lie_on_device(p->desc.b_scale, p->desc.b_mode, &p->b_layout,
                              p->desc.trans_b == CUBLAS_OP_N))
        return false;
    for (const void *m : matrix)
        if (is_fp8(p->a_layout.type) && (uintptr_t)m % 16)
            return false;
    return true;
}

static cublasStatus_t check_pointers(const struct product *p)
{
    uint32_t e = p->desc.epilogue;
    bool fine = lies_on_device(p->a, &p->a_layout) &&
                lies_on_device(p->b, &p->b_layout) &&
                lies_on_device(p->d, &p->d_layout) && fp8_lies_on_device(p);

    if (p->beta != 0)
        fine = fine && lies_on_device(p->c, &p->c_layout);
    if (e & (BIAS | BGRADS))
        fine = fine && bias_lies_on_device(p);
    if (e & AUX)
        fine = fine && aux_lies_on_device(p);
    return fine ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t check_algo(const struct product *p,
                                 const cublasLtMatmulAlgo_t *algo,
                                 const void *workspace, size_t workspace_bytes)
{
    size_t needed = algo ? algo->data[ALGO_WORKSPACE] : 0;

    if (!algo)
        return CUBLAS_STATUS_SUCCESS;
    if (algo->data[ALGO_KEY] != key_of(p) || !is_aligned(p, algo))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return needed > workspace_bytes || (needed && !fake_on_device(workspace, needed))
               ? CUBLAS_STATUS_INVALID_VALUE
               : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    fake_lock hold(fake.lock);
    struct product p = { *desc,
                         *a_layout,
                         *b_layout,
                         *c_layout,
                         *d_layout,
                         a,
                         b,
                         c,
                         d,
                         *(const float *)alpha,
                         *(const float *)beta };
    cublasStatus_t status;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (fake_begin())
        return CUBLAS_STATUS_EXECUTION_FAILED;
    fill_types(&p);
    status = fake_product_check(&p);
    if (!status)
        status = check_pointers(&p);
    if (!status)
        status = check_algo(&p, algo, workspace, workspace_bytes);
    if (!status && (is_listed("FAKE_CUDA_REFUSE_EPILOGUES", p.desc.epilogue) ||
                    is_listed("FAKE_CUDA_REFUSE_TYPES", (uint32_t)p.a_layout.type)))
        status = refusal();
    if (status)
        return status;
    fake.counts.matmuls++;
    fake.counts.fp8_products += is_fp8(p.a_layout.type);
    fake.counts.fp8_fast += is_fp8(p.a_layout.type) && p.desc.fast;
    return fake_put(fake_stream(stream), cudaGraphNodeTypeKernel,
                    [p] {
                        if (fake_kernel_begins())
                            fake_product(&p);
                        return true;
                    })
               ? CUBLAS_STATUS_EXECUTION_FAILED
               : CUBLAS_STATUS_SUCCESS;
}
