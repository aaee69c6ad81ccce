/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and loads the CUDA module. In: the installation, or ACCEL_CUDA_MODULE. Out: the
 * module's entry, after a check that both come from the same build. A module that was
 * opened is never unloaded: the driver's threads may outlive a backend.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/module.h"
#include "backend/cuda_load.h"
#include "common/env_names.h"

/* An empty variable counts as unset, as a shell's `VAR= cmd` means it. */
static const char *module_path(void)
{
    const char *path = getenv(ENV_CUDA_MODULE);

    return path && *path ? path : PKGLIBDIR "/" CUDA_MODULE_FILE;
}

/* A0441 with the hint that fits: a library of the toolkit is missing, or the file is
 * damaged. */
static accel_status_t not_loaded(const char *path, const char *why, accel_error_t *err)
{
    /* "libX.so.1: cannot open shared object file: No such file or directory" */
    const char *end = strstr(why, ": cannot open shared object file");
    char library[128], hint[256];

    snprintf(library, sizeof(library), "%.*s", end ? (int)(end - why) : 0, why);
    if (library[0])
        snprintf(hint, sizeof(hint),
                 "install %.100s (part of the CUDA toolkit) on this node, or load the "
                 "toolkit's environment module",
                 library);
    else
        snprintf(hint, sizeof(hint),
                 "install accel again (make install, or the package)");
    return accel_fail(err, A0441, hint, "%s cannot be loaded: %s", path, why);
}

/* Three guards, from coarse to fine: the interface, the release, and the size of the
 * vtable, which differs between two development builds of one release. */
static accel_status_t check_module(const struct accel_cuda_module *m, const char *path,
                                   accel_error_t *err)
{
    const char *cure = "install library and module from one build (make install), and "
                       "unset " ENV_CUDA_MODULE " if it points elsewhere";

    if (m->abi != CUDA_MODULE_ABI)
        return accel_fail(err, A0442, cure,
                          "%s uses version %d of the module interface, but this "
                          "library uses version %d",
                          path, m->abi, CUDA_MODULE_ABI);
    if (strcmp(m->version, accel_version()) != 0)
        return accel_fail(err, A0442, cure,
                          "%s belongs to accel %s, but this library is %s", path,
                          m->version, accel_version());
    if (m->vtable_bytes != sizeof(struct backend))
        return accel_fail(err, A0442, cure,
                          "%s comes from another build of accel %s: its kernel table "
                          "has %zu bytes, not %zu",
                          path, m->version, m->vtable_bytes, sizeof(struct backend));
    return ACCEL_OK;
}

static accel_status_t cuda_load_module(const struct accel_cuda_module **module_out,
                                       accel_error_t *err)
{
    const char *path = module_path();
    accel_cuda_module_f *entry;
    accel_status_t st;
    void *library, *symbol;

    if (access(path, F_OK) && getenv(ENV_CUDA_MODULE))
        return accel_fail(
            err, A0440, "unset " ENV_CUDA_MODULE " or give it the module's path",
            "the CUDA module %s (" ENV_CUDA_MODULE ") does not exist", path);
    /* the usual case: accel was built on a machine without a toolkit */
    if (access(path, F_OK))
        return accel_fail(err, A0440,
                          "build accel with the CUDA toolkit (./configure "
                          "--with-cuda=DIR), or request no GPU and set use_cpu: true",
                          "this accel was built without CUDA: there is no %s", path);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return not_loaded(path, dlerror(), err);
    symbol = dlsym(library, CUDA_MODULE_ENTRY);
    if (!symbol) {
        dlclose(library);
        return not_loaded(path, "it has no " CUDA_MODULE_ENTRY, err);
    }
    /* ISO C has no cast from an object pointer to a function pointer */
    memcpy(&entry, &symbol, sizeof(entry));
    *module_out = entry();
    st = check_module(*module_out, path, err);
    if (st)
        /* Only its entry has run: it has started no thread and knows no driver, so it
         * may go. */
        dlclose(library);
    return st;
}

accel_status_t backend_cuda_open(struct backend **backend_out, int device,
                                 accel_error_t *err)
{
    const struct accel_cuda_module *m;
    accel_status_t st = cuda_load_module(&m, err);

    return st ? st : m->open(backend_out, device, err);
}

accel_status_t backend_cuda_module(char *text, size_t len, accel_error_t *err)
{
    const struct accel_cuda_module *m;
    accel_status_t st = cuda_load_module(&m, err);

    if (st == ACCEL_OK)
        snprintf(text, len, "%s: accel %s, %s", module_path(), m->version, m->toolkit);
    return st;
}
