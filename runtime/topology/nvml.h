/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML, NVIDIA's management library, as a table of function pointers: loaded at run
 * time, so that nodes without a driver need nothing. The declarations are our own and
 * contain only what is used; a function that an old driver lacks is NULL.
 */
#ifndef ACCEL_TOPOLOGY_NVML_H
#define ACCEL_TOPOLOGY_NVML_H

#include <stdbool.h>
#include <stddef.h>

/* The results of NVML's calls that make a difference here. */
enum {
    NVML_SUCCESS = 0,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_LIB_RM_VERSION_MISMATCH = 18, /* library and kernel module differ */
};

enum {
    NVML_NVLINK_SWITCH = 2, /* nvlink_remote_type: the link leads to an NVSwitch */
    NVML_NVLINKS = 18,      /* links of a GPU at most */
};
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 }; /* `which` of clock and max_clock */

/* nvmlPciInfo_t: both layouts that drivers use begin like this. Only the
 * numbers are read. */
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char rest[64];
};
struct nvml_memory { /* bytes */
    unsigned long long total, free, used;
};
typedef void nvml_device_t; /* opaque, owned by the library */

/* NVML's functions. Those that return int return NVML_SUCCESS or an error. */
struct nvml {
    void *library; /* of dlopen; NULL: not loaded */
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_count)(unsigned *count_out);
    int (*device)(unsigned index, nvml_device_t **device_out);
    int (*uuid)(nvml_device_t *device, char *buf, unsigned len);
    int (*pci)(nvml_device_t *device, struct nvml_pci *pci_out);
    /* From here on: NULL if the library lacks it */
    const char *(*error_string)(int rc);
    int (*driver_version)(char *buf, unsigned len);
    int (*name)(nvml_device_t *device, char *buf, unsigned len);
    int (*memory)(nvml_device_t *device, struct nvml_memory *memory_out);
    int (*mig_mode)(nvml_device_t *device, unsigned *now_out, unsigned *pending_out);
    int (*mig_count)(nvml_device_t *device, unsigned *count_out);
    int (*mig_device)(nvml_device_t *device, unsigned index, nvml_device_t **slice_out);
    int (*gpu_instance)(nvml_device_t *slice, unsigned *id_out);
    int (*compute_instance)(nvml_device_t *slice, unsigned *id_out);
    int (*nvlink_state)(nvml_device_t *device, unsigned link, unsigned *active_out);
    int (*nvlink_remote_type)(nvml_device_t *device, unsigned link, unsigned *type_out);
    int (*nvlink_remote)(nvml_device_t *device, unsigned link,
                         struct nvml_pci *pci_out);
    int (*clock)(nvml_device_t *device, int which, unsigned *mhz_out);
    int (*max_clock)(nvml_device_t *device, int which, unsigned *mhz_out);
    int (*reasons)(nvml_device_t *device, unsigned long long *bits_out);
    int (*power)(nvml_device_t *device, unsigned *milliwatts_out);
    int (*power_limit)(nvml_device_t *device, unsigned *milliwatts_out);
};

struct topo_clocks;
/* clocks.c: a value that the device does not report is left 0. */
void topo_clocks_read(const struct nvml *n, nvml_device_t *device,
                      struct topo_clocks *clocks_out);

enum nvml_state {
    NVML_READY,
    NVML_ABSENT, /* there is no such library: most likely a node without GPUs */
    NVML_BROKEN, /* there is one, but it does not work */
};

/* Loads libnvidia-ml.so.1 and initialises it. After NVML_READY the caller calls
 * nvml_close; otherwise `why` (len bytes) says what is wrong, and there is
 * nothing to close. */
enum nvml_state nvml_open(struct nvml *n, char *why, size_t len);
void nvml_close(struct nvml *n);
/* NVML's text for a result; static. */
const char *nvml_error(const struct nvml *n, int rc);

/* "0000:17:00.0", as the kernel writes it. */
void nvml_print_bus_id(const struct nvml_pci *pci, char *out, size_t len);
/* The bus id of a device; false: it does not answer. */
bool nvml_bus_id(const struct nvml *n, nvml_device_t *device, char *out, size_t len);

#endif
