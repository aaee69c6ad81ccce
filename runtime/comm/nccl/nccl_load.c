/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds NCCL and its functions. In: the system's libraries, or the one that
 * ACCEL_NCCL_LIBRARY names. Out: a table of functions, or the reason why there is none
 * and what helps.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nccl/nccl.h"
#include "common/env_names.h"

/* Which function of the library goes to which field of struct nccl. */
static const struct {
    size_t offset;
    int since; /* first version that has it; 0: all that are accepted */
    const char *name;
} symbols[] = {
#define SYMBOL(field, since, name)                                                     \
    {                                                                                  \
        offsetof(struct nccl, field), since, name                                      \
    }
    SYMBOL(get_version, 0, "ncclGetVersion"),
    SYMBOL(unique_id, 0, "ncclGetUniqueId"),
    SYMBOL(init, 0, "ncclCommInitRankConfig"),
    SYMBOL(split, 0, "ncclCommSplit"),
    SYMBOL(count, 0, "ncclCommCount"),
    SYMBOL(user_rank, 0, "ncclCommUserRank"),
    SYMBOL(finalize, 0, "ncclCommFinalize"),
    SYMBOL(destroy, 0, "ncclCommDestroy"),
    SYMBOL(abort, 0, "ncclCommAbort"),
    SYMBOL(async_error, 0, "ncclCommGetAsyncError"),
    SYMBOL(error_string, 0, "ncclGetErrorString"),
    SYMBOL(last_error, 0, "ncclGetLastError"),
    SYMBOL(all_gather, 0, "ncclAllGather"),
    SYMBOL(reduce_scatter, 0, "ncclReduceScatter"),
    SYMBOL(all_reduce, 0, "ncclAllReduce"),
    SYMBOL(broadcast, 0, "ncclBroadcast"),
    SYMBOL(send, 0, "ncclSend"),
    SYMBOL(recv, 0, "ncclRecv"),
    SYMBOL(group_start, 0, "ncclGroupStart"),
    SYMBOL(group_end, 0, "ncclGroupEnd"),
    SYMBOL(mem_alloc, NCCL_BUFFERS, "ncclMemAlloc"),
    SYMBOL(mem_free, NCCL_BUFFERS, "ncclMemFree"),
    SYMBOL(reg, NCCL_BUFFERS, "ncclCommRegister"),
    SYMBOL(dereg, NCCL_BUFFERS, "ncclCommDeregister"),
#undef SYMBOL
};

const char *nccl_version_text(int version, char buf[16])
{
    /* Before 2.9 the major version was multiplied by 1000. */
    int unit = version < 10000 ? 1000 : 10000;

    snprintf(buf, 16, "%d.%d.%d", version / unit % 100, version % unit / 100,
             version % 100);
    return buf;
}

/* Fills the table. Returns the name of the first function that this version must have
 * and that is missing, or NULL. A library older than `since` leaves NULL in the field.
 * Without the check a stray symbol of that name would be used. */
static const char *nccl_find(struct nccl *n)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(symbols); i++) {
        void *f = NULL;

        if (n->version >= symbols[i].since) {
            f = dlsym(n->library, symbols[i].name);
            if (!f)
                return symbols[i].name;
        }
        memcpy((char *)n + symbols[i].offset, &f, sizeof(f));
    }
    return NULL;
}

/* The version first, by the one function that every NCCL has: which functions to expect
 * depends on it. */
static accel_status_t nccl_check_library(struct nccl *n, const char *file,
                                         accel_error_t *err)
{
    static const char cure[] = "install NCCL 2.18 or newer where the loader finds it, "
                               "or set its path in " ENV_NCCL_LIBRARY;
    char have[16];
    const char *missing;

    *(void **)&n->get_version = dlsym(n->library, "ncclGetVersion");
    if (!n->get_version || n->get_version(&n->version) != NCCL_SUCCESS)
        return accel_fail(err, A0514, cure, "%s does not report an NCCL version", file);
    if (n->version < NCCL_OLDEST)
        return accel_fail(err, A0514, cure, "%s is NCCL %s; 2.18 or newer is needed",
                          file, nccl_version_text(n->version, have));
    missing = nccl_find(n);
    if (missing)
        return accel_fail(err, A0514, cure, "%s is NCCL %s but has no %s", file,
                          nccl_version_text(n->version, have), missing);
    return ACCEL_OK;
}

accel_status_t nccl_open(struct nccl *n, accel_error_t *err)
{
    const char *file = getenv(ENV_NCCL_LIBRARY);
    accel_status_t st;

    memset(n, 0, sizeof(*n));
    if (!file || !file[0])
        file = NCCL_LIBRARY;
    /* NODELETE: NCCL's threads outlive its communicators, and one per unique id waits
     * until all ranks have come. Their code must stay mapped after dlclose. */
    n->library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!n->library)
        return accel_fail(
            err, A0513,
            "install NCCL (libnccl2, or your cluster's module), add its directory to "
            "LD_LIBRARY_PATH, or set its path in " ENV_NCCL_LIBRARY,
            "several GPUs need NCCL: %s", dlerror());
    st = nccl_check_library(n, file, err);
    if (st != ACCEL_OK)
        nccl_close(n);
    return st;
}

void nccl_close(struct nccl *n)
{
    if (n->library)
        dlclose(n->library);
    n->library = NULL;
}
