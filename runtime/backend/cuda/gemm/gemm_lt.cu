/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors of products for cuBLASLt, and the table that keeps one set per key. In:
 * keys. Out: entries that the table owns. Touches no device memory.
 */
#include "backend/cuda/gemm/gemm_lt.h"

#include <stdlib.h>

static cudaDataType_t type_of(uint8_t type)
{
    return type == ACCEL_BF16     ? CUDA_R_16BF
           : type == ACCEL_F16    ? CUDA_R_16F
           : type == ACCEL_F8E4M3 ? CUDA_R_8F_E4M3
           : type == ACCEL_F8E5M2 ? CUDA_R_8F_E5M2
                                  : CUDA_R_32F;
}

/* The epilogue of a set of GEMM_* bits; AUX is the value before the activation. */
static cublasLtEpilogue_t epilogue_of(unsigned fused)
{
    switch (fused) {
    case GEMM_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case GEMM_GELU:
        return CUBLASLT_EPILOGUE_GELU;
    case GEMM_GELU | GEMM_BIAS:
        return CUBLASLT_EPILOGUE_GELU_BIAS;
    case GEMM_GELU | GEMM_PRE:
        return CUBLASLT_EPILOGUE_GELU_AUX;
    case GEMM_GELU | GEMM_PRE | GEMM_BIAS:
        return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case GEMM_SLOPE:
        return CUBLASLT_EPILOGUE_DGELU;
    case GEMM_SUMS: /* our a is its second operand */
        return CUBLASLT_EPILOGUE_BGRADB;
    default:
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

/* Sets one attribute; does nothing after a failure, so callers check once. */
static void set(cublasStatus_t *status, struct gemm_lt *g,
                cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = cublasLtMatmulDescSetAttribute(g->product, what, value, bytes);
}

#if GEMM_HAS_BLOCKS
static void set_blocks(cublasStatus_t *status, struct gemm_lt *g,
                       cublasLtMatmulDescAttributes_t what, uint8_t blocks)
{
    const int32_t mode =
        blocks == GEMM_SQUARES ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
        : blocks == GEMM_LINES ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                               : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;

    if (blocks != GEMM_ONE_SCALE)
        set(status, g, what, &mode, sizeof(mode));
}
#endif

/* The bias of 8-bit operands is bfloat16 unless this says otherwise; AUX, too. */
static void describe_fp8(cublasStatus_t *status, struct gemm_lt *g,
                         const struct gemm_key *key)
{
    const int8_t fast = (int8_t)key->fast;
    const cudaDataType_t type = type_of(key->out);

    set(status, g, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast));
#if GEMM_HAS_BLOCKS
    set_blocks(status, g, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, key->blocks_b);
    set_blocks(status, g, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, key->blocks_a);
#endif
    if (key->fused & GEMM_BIAS)
        set(status, g, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type));
    if (key->fused & (GEMM_PRE | GEMM_SLOPE))
        set(status, g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type,
            sizeof(type));
}

/* Accumulates in float32. float32 operands are multiplied as they are, never as
 * TF32. */
static cublasStatus_t describe_product(struct gemm_lt *g, const struct gemm_key *key)
{
    /* first is our b, second our a: operands are exchanged */
    cublasOperation_t first = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(key->fused);
    cublasStatus_t status =
        cublasLtMatmulDescCreate(&g->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    set(&status, g, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    set(&status, g, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    set(&status, g, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    /* the value before the activation has c's stride */
    if (key->fused & (GEMM_PRE | GEMM_SLOPE))
        set(&status, g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->ldc,
            sizeof(key->ldc));
    if (gemm_is_fp8((accel_dtype_t)key->a))
        describe_fp8(&status, g, key);
    return status;
}

/* A stored matrix; `ld` elements from one column to the next, which is one of our rows.
 */
static cublasStatus_t describe_matrix(cublasLtMatrixLayout_t *out, uint8_t type,
                                      int64_t rows, int64_t cols, int64_t ld)
{
    return cublasLtMatrixLayoutCreate(out, type_of(type), (uint64_t)rows,
                                      (uint64_t)cols, ld);
}

/* Rows and columns are exchanged throughout: cuBLASLt reads our rows as its columns. */
cublasStatus_t gemm_lt_open(struct gemm_lt *g, const struct gemm_key *key)
{
    cublasStatus_t status;

    memset(g, 0, sizeof(*g));
    g->key = *key;
    status = describe_product(g, key);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&g->first, key->b, key->trans_b ? key->k : key->n,
                                 key->trans_b ? key->n : key->k, key->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&g->second, key->a, key->trans_a ? key->m : key->k,
                                 key->trans_a ? key->k : key->m, key->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_matrix(&g->result, key->out, key->n, key->m, key->ldc);
    if (status != CUBLAS_STATUS_SUCCESS)
        gemm_lt_close(g);
    return status;
}

void gemm_lt_close(struct gemm_lt *g)
{
    if (g->result)
        cublasLtMatrixLayoutDestroy(g->result);
    if (g->second)
        cublasLtMatrixLayoutDestroy(g->second);
    if (g->first)
        cublasLtMatrixLayoutDestroy(g->first);
    if (g->product)
        cublasLtMatmulDescDestroy(g->product);
    g->result = g->second = g->first = NULL;
    g->product = NULL;
}

cublasStatus_t gemm_lt_vectors(struct gemm_lt *g, const struct gemm *p)
{
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const void *bias = p->bias;
    void *pre = p->pre;

    /* first is b */
    if (gemm_is_fp8(p->a_type)) {
        const void *b = p->b_blocks.inverse ? p->b_blocks.inverse : p->b_inverse;
        const void *a = p->a_blocks.inverse ? p->a_blocks.inverse : p->a_inverse;

        set(&status, g, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b, sizeof(b));
        set(&status, g, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a, sizeof(a));
    }

    if (g->key.fused & (GEMM_BIAS | GEMM_SUMS))
        set(&status, g, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    if (g->key.fused & (GEMM_PRE | GEMM_SLOPE))
        set(&status, g, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &pre, sizeof(pre));
    return status;
}

/* As `set`, for a preference. */
static void prefer(cublasStatus_t *status, cublasLtMatmulPreference_t p,
                   cublasLtMatmulPreferenceAttributes_t what, const void *value,
                   size_t bytes)
{
    if (*status == CUBLAS_STATUS_SUCCESS)
        *status = cublasLtMatmulPreferenceSetAttribute(p, what, value, bytes);
}

cublasStatus_t gemm_lt_preference(const struct gemm_key *key, size_t workspace,
                                  cublasLtMatmulPreference_t *out)
{
    /* Parts of k are added in float32 and in order: not in place by whichever comes
     * first, and not after rounding. */
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t first = 1u << key->align_b, second = 1u << key->align_a;
    uint32_t result = 1u << key->align_c;
    /* alignments are those of the addresses in the key: an algorithm that wants more is
     * not proposed */
    uint64_t bytes = workspace;
    cublasLtMatmulPreference_t p;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&p);

    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    prefer(&status, p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    prefer(&status, p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
           sizeof(scheme));
    prefer(&status, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first,
           sizeof(first));
    prefer(&status, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second,
           sizeof(second));
    prefer(&status, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &result,
           sizeof(result));
    prefer(&status, p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &result,
           sizeof(result));
    if (status == CUBLAS_STATUS_SUCCESS)
        *out = p;
    else
        cublasLtMatmulPreferenceDestroy(p);
    return status;
}

/* The slot of the key, or the free one where it belongs. There always is a free one. */
static struct gemm_lt **find(const struct gemm_table *t, const struct gemm_key *key)
{
    size_t at = (size_t)gemm_key_hash(key) & (t->slots - 1);

    while (t->slot[at] && !gemm_key_equal(&t->slot[at]->key, key))
        at = (at + 1) & (t->slots - 1);
    return &t->slot[at];
}

/* Doubles the table and moves the entries; pointers to them stay valid. */
static bool grow(struct gemm_table *t)
{
    /* a power of two: the hash is masked, not divided */
    struct gemm_table larger = { NULL, t->slots ? 2 * t->slots : 64, t->used };

    larger.slot = (struct gemm_lt **)calloc(larger.slots, sizeof(*larger.slot));
    if (!larger.slot)
        return false;
    for (size_t i = 0; i < t->slots; i++)
        if (t->slot[i])
            *find(&larger, &t->slot[i]->key) = t->slot[i];
    free(t->slot);
    *t = larger;
    return true;
}

struct gemm_lt *gemm_table_get(struct gemm_table *t, const struct gemm_key *key,
                               cublasStatus_t *status)
{
    struct gemm_lt **slot, *g;

    *status = CUBLAS_STATUS_ALLOC_FAILED;
    /* at most half full: open addressing stays a look or two */
    if (2 * (t->used + 1) > t->slots && !grow(t))
        return NULL;
    slot = find(t, key);
    if (*slot)
        return *slot;
    /* one allocation per key: pointers stay valid when the table grows */
    g = (struct gemm_lt *)malloc(sizeof(*g));
    if (!g)
        return NULL;
    *status = gemm_lt_open(g, key);
    if (*status != CUBLAS_STATUS_SUCCESS) {
        free(g);
        return NULL;
    }
    t->used++;
    *slot = g;
    return g;
}

void gemm_table_close(struct gemm_table *t)
{
    for (size_t i = 0; i < t->slots; i++)
        if (t->slot[i]) {
            gemm_lt_close(t->slot[i]);
            free(t->slot[i]);
        }
    free(t->slot);
    t->slot = NULL;
    t->slots = t->used = 0;
}
