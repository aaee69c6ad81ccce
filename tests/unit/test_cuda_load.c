/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading the CUDA module: what is told when it is not there, cannot be loaded, is
 * another version's, or finds no driver, no device or no code. No GPU is needed: the
 * module is the one of the stand-in toolkit, or what nvcc built on a machine without a
 * driver.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda_load.h"
#include "tests/tap.h"

static char path[4096];

static const char *in_build(const char *name)
{
    const char *build = getenv("ACCEL_BUILD");

    snprintf(path, sizeof(path), "%s/%s", build ? build : ".", name);
    return path;
}

/* Opens `device` of the module and says which error comes, with what in its text and
 * cure. */
static void refused(const char *module, int device, int message, const char *text,
                    const char *cure, const char *what)
{
    struct backend *be = NULL;
    accel_error_t err = { 0 };
    accel_status_t st;

    setenv("ACCEL_CUDA_MODULE", module, 1);
    st = backend_cuda_open(&be, device, &err);
    tap_ok(accel_exit_code(st) == 69 && !be, "%s: exit code 69", what);
    tap_is_int(err.message, message, "A%04d", message);
    if (!tap_ok(strstr(err.text, text) && strstr(err.hint, cure),
                "the text says so, and the cure"))
        tap_diag("%s / %s", err.text, err.hint);
    if (be)
        be->close(be);
}

static void test_files(void)
{
    char text[4096];
    FILE *f;

    refused("/nonexistent/accel_cuda.so", 0, 440, "/nonexistent/accel_cuda.so",
            "ACCEL_CUDA_MODULE", "no such module");
    snprintf(text, sizeof(text), "%s", in_build("tests/unit/not_a_module.txt"));
    f = fopen(text, "w");
    if (!f || fputs("text\n", f) < 0 || fclose(f))
        tap_diag("cannot write %s", text);
    refused(text, 0, 441, "cannot be loaded", "install accel again", "a file of text");
    unlink(text);
    refused(in_build("tests/cuda/.libs/libfakecuda.so"), 0, 441,
            "it has no accel_cuda_module", "install accel again", "another library");
    refused(in_build("tests/cuda/gone_module.so"), 0, 441, "libcublasLt.so.99",
            "install libcublasLt.so.99 (part of the CUDA toolkit)",
            "a module without its library");
}

static void test_versions(void)
{
    static const struct {
        const char *odd, *text;
    } cases[] = {
        { "abi", "of the module interface" },
        { "version", "belongs to accel 0.0.9, but this library is" },
        { "table", "its kernel table has 8 bytes" },
    };
    char module[4096];

    snprintf(module, sizeof(module), "%s",
             in_build("tests/helpers/.libs/odd_cuda_module.so"));
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(cases); i++) {
        setenv("ODD_CUDA_MODULE", cases[i].odd, 1);
        refused(module, 0, 442, cases[i].text, "from one build", cases[i].odd);
    }
}

/* The stand-in reads its environment again. */
static bool reset(void)
{
    void *fake = dlopen(in_build("tests/cuda/.libs/libfakecuda.so"), RTLD_NOW);
    void (*again)(void) = NULL;
    void *symbol = fake ? dlsym(fake, "fakecuda_reset") : NULL;

    if (symbol) {
        memcpy(&again, &symbol, sizeof(again));
        again();
    }
    return symbol != NULL;
}

static void with(const char *name, const char *value, int device, int message,
                 const char *text, const char *cure, const char *what)
{
    char module[4096];

    snprintf(module, sizeof(module), "%s", in_build("tests/cuda/accel_cuda.so"));
    setenv(name, value, 1);
    tap_ok(reset(), "the stand-in: %s=%s", name, value);
    refused(module, device, message, text, cure, what);
    unsetenv(name);
    reset();
}

static void test_machines(void)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    with("FAKE_CUDA_DEVICES", "nodriver", 0, 443, "there is no CUDA driver",
         "use_cpu: true", "no driver");
    with("FAKE_CUDA_DRIVER", "12040", 0, 443,
         "supports CUDA 12.4, but the CUDA module needs 13.0",
         "update the node's driver", "an old driver");
    with("FAKE_CUDA_DEVICES", "0", 0, 444, "there is no GPU 0: this process sees 0",
         "accel topo", "no device");
    with("FAKE_CUDA_DEVICES", "2", 2, 444, "there is no GPU 2: this process sees 2",
         "accel topo", "too few devices");
    with("FAKE_CUDA_DEVICES", "2", -1, 444, "there is no GPU -1", "accel topo",
         "a number below 0");
    with("CUDA_VISIBLE_DEVICES", "0", 1, 444, "(CUDA_VISIBLE_DEVICES=0)", "Slurm",
         "a device that is hidden");
    with("FAKE_CUDA_LOSE_AFTER", "0:209", 0, 445, "has no code for GPU 0",
         "--with-cuda-arch=", "no kernel for the device");
    with("FAKE_CUDA_LOSE_AFTER", "0:802", 0, 443, "GPU 0", "fabricmanager",
         "a system that is not ready");
}

static void test_memory_at_open(void)
{
    struct backend *be = NULL;
    accel_error_t err = { 0 };

    setenv("FAKE_CUDA_MEMORY", "100", 1);
    reset();
    setenv("ACCEL_CUDA_MODULE", in_build("tests/cuda/accel_cuda.so"), 1);
    tap_is_int(backend_cuda_open(&be, 0, &err), ACCEL_ENOMEM, "no memory at open");
    tap_is_int(err.message, 447, "A0447");
    if (!tap_ok(strstr(err.text, "GPU 0 is out of memory") && err.hint[0], "and why"))
        tap_diag("%s / %s", err.text, err.hint);
    unsetenv("FAKE_CUDA_MEMORY");
    reset();
}

static void test_said(void)
{
    accel_error_t err;
    char text[512] = "";

    setenv("ACCEL_CUDA_MODULE", in_build("tests/cuda/accel_cuda.so"), 1);
    tap_is_int(backend_cuda_module(text, sizeof(text), &err), ACCEL_OK,
               "the module tells what it is");
    tap_ok(strstr(text, accel_version()) && strstr(text, "stand-in"), "%s",
           "version and toolkit");
}

/* The real one: loads wherever it was built, and wants a driver. */
static void test_nvcc(void)
{
    char module[4096];

    snprintf(module, sizeof(module), "%s",
             in_build("runtime/backend/cuda/accel_cuda.so"));
    if (access(module, F_OK))
        tap_skip(3, "no nvcc");
    else if (!access("/dev/nvidiactl", F_OK))
        tap_skip(3, "this machine has a driver");
    else
        refused(module, 0, 443, "there is no CUDA driver", "nvidia-smi",
                "nvcc's module without a driver");
}

int main(void)
{
    if (access(in_build("tests/cuda/accel_cuda.so"), F_OK))
        tap_skip_all("no C++ compiler, or a sanitizer build: the module is not built");
    test_files();
    test_versions();
    test_machines();
    test_memory_at_open();
    test_said();
    test_nvcc();
    return tap_done();
}
