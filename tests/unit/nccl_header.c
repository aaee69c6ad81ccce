/* SPDX-License-Identifier: Apache-2.0
 *
 * Where NCCL's own header is installed: our declarations have its values, sizes and
 * signatures. Nothing here runs; that it compiles is the test.
 */
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
/* The header's own prototypes are not ours to correct. */
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <nccl.h>

#include "comm/nccl/nccl.h"

_Static_assert((int)NCCL_SUCCESS == ncclSuccess, "result");
_Static_assert((int)NCCL_INVALID_USAGE == ncclInvalidUsage, "result");
_Static_assert((int)NCCL_REMOTE_ERROR == ncclRemoteError, "result");
_Static_assert((int)NCCL_IN_PROGRESS == ncclInProgress, "result");
_Static_assert((int)NCCL_UINT8 == ncclUint8, "type");
_Static_assert((int)NCCL_INT64 == ncclInt64, "type");
_Static_assert((int)NCCL_FLOAT32 == ncclFloat32, "type");
_Static_assert((int)NCCL_FLOAT64 == ncclFloat64, "type");
_Static_assert((int)NCCL_BFLOAT16 == ncclBfloat16, "type");
_Static_assert(NCCL_NO_COLOR == NCCL_SPLIT_NOCOLOR, "color");
_Static_assert((int)NCCL_SUM == ncclSum, "operation");
_Static_assert((int)NCCL_MAX == ncclMax, "operation");
_Static_assert((int)NCCL_MIN == ncclMin, "operation");
_Static_assert(sizeof(struct nccl_id) == sizeof(ncclUniqueId), "unique id");
_Static_assert(NCCL_VERSION_OF(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH) == NCCL_VERSION_CODE,
               "version");

#define SAME_PLACE(field)                                                              \
    _Static_assert(offsetof(struct nccl_config, field) ==                              \
                           offsetof(ncclConfig_t, field) &&                            \
                       sizeof(((struct nccl_config *)0)->field) ==                     \
                           sizeof(((ncclConfig_t *)0)->field),                         \
                   "config: " #field)
SAME_PLACE(size);
SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(blocking);
_Static_assert(sizeof(struct nccl_config) <= sizeof(ncclConfig_t), "config");

/* A signature in terms of result, communicator, type, operation, stream, id and config:
 * with NCCL's names it is NCCL's, with ours it is that of our table. */
#define SAME(field, name)                                                              \
    _Static_assert(                                                                    \
        __builtin_types_compatible_p(                                                  \
            __typeof__(&name),                                                         \
            SIGNATURE_##field(ncclResult_t, ncclComm_t, ncclDataType_t, ncclRedOp_t,   \
                              cudaStream_t, ncclUniqueId, ncclConfig_t)),              \
        #name " of nccl.h");                                                           \
    _Static_assert(                                                                    \
        __builtin_types_compatible_p(                                                  \
            __typeof__(((struct nccl *)0)->field),                                     \
            SIGNATURE_##field(int, nccl_comm_t *, int, int, nccl_stream_t *,           \
                              struct nccl_id, struct nccl_config)),                    \
        #name " of comm/nccl/nccl.h")
/* clang-format off */
#define SIGNATURE_get_version(R, C, T, O, S, I, K) R (*)(int *)
#define SIGNATURE_unique_id(R, C, T, O, S, I, K) R (*)(I *)
#define SIGNATURE_init(R, C, T, O, S, I, K) R (*)(C *, int, I, int, K *)
#define SIGNATURE_split(R, C, T, O, S, I, K) R (*)(C, int, int, C *, K *)
#define SIGNATURE_count(R, C, T, O, S, I, K) R (*)(C, int *)
#define SIGNATURE_user_rank(R, C, T, O, S, I, K) R (*)(C, int *)
#define SIGNATURE_finalize(R, C, T, O, S, I, K) R (*)(C)
#define SIGNATURE_destroy(R, C, T, O, S, I, K) R (*)(C)
#define SIGNATURE_abort(R, C, T, O, S, I, K) R (*)(C)
#define SIGNATURE_async_error(R, C, T, O, S, I, K) R (*)(C, R *)
#define SIGNATURE_error_string(R, C, T, O, S, I, K) const char *(*)(R)
#define SIGNATURE_last_error(R, C, T, O, S, I, K) const char *(*)(C)
#define SIGNATURE_all_gather(R, C, T, O, S, I, K) R (*)(const void *, void *, size_t, T, C, S)
#define SIGNATURE_reduce_scatter(R, C, T, O, S, I, K) R (*)(const void *, void *, size_t, T, O, C, S)
#define SIGNATURE_all_reduce(R, C, T, O, S, I, K) R (*)(const void *, void *, size_t, T, O, C, S)
#define SIGNATURE_broadcast(R, C, T, O, S, I, K) R (*)(const void *, void *, size_t, T, int, C, S)
#define SIGNATURE_send(R, C, T, O, S, I, K) R (*)(const void *, size_t, T, int, C, S)
#define SIGNATURE_recv(R, C, T, O, S, I, K) R (*)(void *, size_t, T, int, C, S)
#define SIGNATURE_group_start(R, C, T, O, S, I, K) R (*)(void)
#define SIGNATURE_group_end(R, C, T, O, S, I, K) R (*)(void)
#define SIGNATURE_mem_alloc(R, C, T, O, S, I, K) R (*)(void **, size_t)
#define SIGNATURE_mem_free(R, C, T, O, S, I, K) R (*)(void *)
#define SIGNATURE_reg(R, C, T, O, S, I, K) R (*)(C, void *, size_t, void **)
#define SIGNATURE_dereg(R, C, T, O, S, I, K) R (*)(C, void *)
/* clang-format on */
SAME(get_version, ncclGetVersion);
SAME(unique_id, ncclGetUniqueId);
SAME(init, ncclCommInitRankConfig);
SAME(split, ncclCommSplit);
SAME(count, ncclCommCount);
SAME(user_rank, ncclCommUserRank);
SAME(finalize, ncclCommFinalize);
SAME(destroy, ncclCommDestroy);
SAME(abort, ncclCommAbort);
SAME(async_error, ncclCommGetAsyncError);
SAME(error_string, ncclGetErrorString);
SAME(last_error, ncclGetLastError);
SAME(all_gather, ncclAllGather);
SAME(reduce_scatter, ncclReduceScatter);
SAME(all_reduce, ncclAllReduce);
SAME(broadcast, ncclBroadcast);
SAME(send, ncclSend);
SAME(recv, ncclRecv);
SAME(group_start, ncclGroupStart);
SAME(group_end, ncclGroupEnd);
SAME(mem_alloc, ncclMemAlloc);
SAME(mem_free, ncclMemFree);
SAME(reg, ncclCommRegister);
SAME(dereg, ncclCommDeregister);
/* Enums travel as int in our table. */
_Static_assert(sizeof(ncclResult_t) == sizeof(int) &&
                   sizeof(ncclDataType_t) == sizeof(int) &&
                   sizeof(ncclRedOp_t) == sizeof(int),
               "enums");
#else
typedef int nothing_to_compare; /* a file must have something in it */
#endif
