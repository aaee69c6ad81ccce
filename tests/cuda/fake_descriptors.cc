/* SPDX-License-Identifier: Apache-2.0
 *
 * cublasLt's handle and descriptors: made, set and freed. An attribute has one size and no
 * other is taken.
 */
#include <string.h>

#include "fakecuda.h"
#include "include/cublasLt.h"

struct cublasLtContext {
    int device;
};

template <typename T> static T *counted(T *made)
{
    fake_lock hold(fake.lock);

    fake.counts.alive++;
    return made;
}

template <typename T> static cublasStatus_t destroy(T *made)
{
    fake_lock hold(fake.lock);

    fake.counts.alive -= made != NULL;
    delete made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    fake_lock hold(fake.lock);

    if (fake_begin())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = counted(new cublasLtContext{ fake_device });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

static const struct {
    cublasStatus_t status;
    const char *text;
} statuses[] = {
    { CUBLAS_STATUS_SUCCESS, "success" },
    { CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized" },
    { CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed" },
    { CUBLAS_STATUS_INVALID_VALUE,
      "an unsupported value or parameter was passed to the function" },
    { CUBLAS_STATUS_EXECUTION_FAILED, "the GPU program failed to execute" },
    { CUBLAS_STATUS_NOT_SUPPORTED, "the functionality requested is not supported" },
};

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    for (const auto &s : statuses)
        if (s.status == status)
            return s.text;
    return "an internal operation failed";
}

/* ---- attributes ------------------------------------------------------------------------- */

static cublasStatus_t set(void *member, size_t size, const void *value, size_t bytes)
{
    if (!member || !value || bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

#define CASE(attr, member)                                                             \
    case attr:                                                                         \
        return set(&(member), sizeof(member), value, bytes)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attr,
                                              const void *value, size_t bytes)
{
    switch (attr) {
        CASE(CUBLASLT_MATMUL_DESC_TRANSA, d->trans_a);
        CASE(CUBLASLT_MATMUL_DESC_TRANSB, d->trans_b);
        CASE(CUBLASLT_MATMUL_DESC_EPILOGUE, d->epilogue);
        CASE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, d->bias);
        CASE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, d->aux);
        CASE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, d->aux_ld);
        CASE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, d->a_scale);
        CASE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, d->b_scale);
        CASE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, d->aux_type);
        CASE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, d->a_mode);
        CASE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, d->b_mode);
        CASE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, d->fast);
        CASE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, d->bias_type);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t attr,
    const void *value, size_t bytes)
{
    switch (attr) {
        CASE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p->workspace);
        CASE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, p->reduction);
        CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p->alignment[0]);
        CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p->alignment[1]);
        CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p->alignment[2]);
        CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p->alignment[3]);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- making and freeing ----------------------------------------------------------------- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    *out = counted(new cublasLtMatrixLayoutOpaque_t{ type, rows, cols, ld });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *out = counted(new cublasLtMatmulDescOpaque_t());
    (*out)->compute = compute;
    (*out)->scale = scale;
    (*out)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    (*out)->bias_type = (*out)->aux_type = -1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy(desc);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = counted(new cublasLtMatmulPreferenceOpaque_t());
    (*out)->reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
    for (uint32_t &alignment : (*out)->alignment)
        alignment = 256;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference);
}
