/* SPDX-License-Identifier: Apache-2.0
 *
 * topology/: which GPU, cores, NUMA node and network interface each rank of a node uses.
 * The machine is read once (hwloc, NVML) or taken from a record; everything after that is
 * a pure function from data to data. Only topo_bind changes anything.
 */
#ifndef ACCEL_TOPOLOGY_TOPO_H
#define ACCEL_TOPOLOGY_TOPO_H

#include "common/common.h"

enum {
    TOPO_GPUS = 64,      /* of a node */
    TOPO_SLICES = 8,     /* MIG slices of a GPU */
    TOPO_PEERS = 18,     /* GPUs that a GPU has direct NVLinks to */
    TOPO_RANK_GPUS = 16, /* of a rank */
    TOPO_ID = 96,        /* "MIG-GPU-UUID/gi/ci" */
    TOPO_MASK = 2320,    /* hexadecimal mask of 8192 hardware threads, "0x...,0x..." */
};

/* ---- GPUs ------------------------------------------------------------------------------ */

struct topo_slice {
    char uuid[TOPO_ID];
    int gpu_instance, compute_instance; /* -1 unknown */
    int64_t memory_bytes;               /* 0 unknown */
};

/* What holds a GPU's clocks down, in NVML's bits. */
enum topo_reason {
    REASON_IDLE = 0x1,
    REASON_SET = 0x2,       /* somebody set lower clocks */
    REASON_POWER_CAP = 0x4, /* the limit of its power: usual under full load */
    REASON_HARDWARE = 0x8,  /* heat or power, which the next ones may tell */
    REASON_SYNC = 0x10,     /* held to the slowest GPU of a group */
    REASON_DRIVER_HEAT = 0x20,
    REASON_HARDWARE_HEAT = 0x40,
    REASON_POWER_BRAKE = 0x80, /* the node's power supply asked for it */
    /* Those that nobody wants: */
    REASONS_SLOW = REASON_HARDWARE | REASON_DRIVER_HEAT | REASON_HARDWARE_HEAT |
                   REASON_POWER_BRAKE,
};
struct topo_clocks { /* 0 unknown */
    int sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
    int watts, limit_watts;
    unsigned reasons; /* of enum topo_reason */
};
/* "345 of 1980 MHz, memory 2619 of 2619 MHz, 71 of 700 W"; empty: nothing is known. */
const char *topo_clocks_text(const struct topo_clocks *c, char *buf, size_t len);
/* "too hot, slowed down by its hardware; at its power limit"; returns buf. */
const char *topo_reasons_text(unsigned reasons, char *buf, size_t len);

struct topo_gpu {
    char bus_id[16]; /* "0000:17:00.0", lower case; empty: it does not answer */
    char uuid[TOPO_ID];
    char name[64];
    int64_t memory_bytes, memory_used_bytes; /* 0 unknown */
    bool mig;                                /* cut into slices (perhaps none yet) */
    int slices;
    struct topo_slice slice[TOPO_SLICES];
    int nvlinks;        /* active ones */
    int nvlinks_switch; /* of them, to an NVSwitch */
    int peers;          /* the others' ends, by bus id: a cgroup may hide those GPUs */
    char peer[TOPO_PEERS][16];
    struct topo_clocks clocks; /* when it was looked at */
};
/* In the order of their indices: as NVML counts them, by bus id in a record. */
struct topo_gpus {
    bool known;  /* else `why` says why nothing can be said about GPUs */
    bool broken; /* there is a driver's library, and it does not work */
    char why[256];
    char driver[32];
    int count;
    struct topo_gpu gpu[TOPO_GPUS];
};

/* This machine's, by NVML. */
void topo_gpus_find(struct topo_gpus *out);
/* Does an NVLink of it lead to the GPU with that bus id? */
bool topo_gpu_linked(const struct topo_gpu *gpu, const char *bus_id);

/* One GPU, to be asked again while a run goes on. NULL: it has no bus id that NVML knows. */
struct topo_watch;
struct topo_watch *topo_watch_open(const char *bus_id);
/* The REASONS_SLOW that hold now: one question to the driver, which waits for no kernel. */
unsigned topo_watch_slow(const struct topo_watch *w);
void topo_watch_read(const struct topo_watch *w, struct topo_clocks *out);
void topo_watch_close(struct topo_watch *w); /* NULL is fine */

/* A GPU or a slice of one, as one rank uses it. */
struct topo_device {
    int index;            /* in topo_gpus; -1: the node's GPUs are not known */
    char bus_id[16];      /* empty: not known */
    char id[TOPO_ID];     /* UUID of GPU or slice; not known: the word in the list */
    int64_t memory_bytes; /* 0 unknown */
    int sm_max_mhz, limit_watts; /* 0 unknown; a slice has no limit of its own */
};
/* Is it a slice of a GPU? */
bool topo_is_slice(const struct topo_device *d);

/* The GPU rule: k visible devices, L local ranks, l local rank. k == 1 -> device 0;
 * k % L == 0 -> slice [l*k/L, (l+1)*k/L); else ACCEL_EMISMATCH with both numbers.
 * visible: value of CUDA_VISIBLE_DEVICES (NULL: unset); on_node: SLURM_GPUS_ON_NODE.
 * No GPU given: count_out 0. An empty list with on_node > 0 is ACCEL_EUNAVAIL (hint:
 * --gpu-bind=none). Never reads the environment. */
accel_status_t topo_gpu_map(const char *visible, int on_node, int local_rank,
                            int local_size, int *first_out, int *count_out,
                            accel_error_t *err);

/* Refuses a step with GPUs whose list is unset (--gpu-bind=none) unless it can open just as
 * many as it was given: a program would take GPUs of other jobs. */
accel_status_t topo_check_unset(const struct topo_gpus *gpus, const char *visible,
                                int on_node, accel_error_t *err);
/* What stands at place `at` of the list of visible devices: an index, the UUID of a GPU or
 * of a slice or the beginning of one, "MIG-GPU-UUID/gi/ci"; NULL: GPU number `at`. A GPU
 * that is cut into slices stands for its first one, as CUDA has it.
 * Errors: ACCEL_EUNAVAIL (no such device, several that begin so, no slice). */
accel_status_t topo_visible_device(const struct topo_gpus *gpus, const char *visible,
                                   int at, struct topo_device *out, accel_error_t *err);

/* ---- the machine ----------------------------------------------------------------------- */

/* hwloc's tree with devices, its interfaces and GPUs. */
struct topo_machine;

/* `record`: an hwloc XML file, its GPUs are the PCI devices in it; NULL: this machine (or
 * $HWLOC_XMLFILE, which says that it looks like that), its GPUs are NVML's, which is left
 * alone unless `want_gpus`. Nothing to free on failure. Errors: ACCEL_ENOENT, ACCEL_EOS. */
accel_status_t topo_machine_open(struct topo_machine **out, const char *record,
                                 bool want_gpus, accel_error_t *err);
void topo_machine_close(struct topo_machine *m);
const struct topo_gpus *topo_machine_gpus(const struct topo_machine *m);
/* NVIDIA GPUs on the node's buses, given or not; asks no driver. */
int topo_machine_gpus_present(const struct topo_machine *m);
/* "Intel(R) Xeon(R)..."; never NULL. */
const char *topo_machine_cpu(const struct topo_machine *m);
/* Name of network interface number `i`, NULL beyond the last one. */
const char *topo_machine_nic(const struct topo_machine *m, int i);
/* Affinity of the calling thread; of a record, the whole machine. */
accel_status_t topo_own_mask(const struct topo_machine *m, char mask_out[TOPO_MASK],
                             accel_error_t *err);

/* ---- the map --------------------------------------------------------------------------- */

/* What a rank of the node was given. */
struct topo_rank {
    char mask[TOPO_MASK];
    int devices;
    struct topo_device device[TOPO_RANK_GPUS];
};

/* How far an interface is, in the words of nvidia-smi topo: behind one PCIe switch,
 * behind several, behind one host bridge, on one NUMA node, farther. */
enum topo_path { PATH_PIX, PATH_PXB, PATH_PHB, PATH_NODE, PATH_SYS, PATH_UNKNOWN };
const char *topo_path_name(enum topo_path path);

/* What it uses of the machine. */
struct topo_place {
    int cores;            /* physical cores this rank may compute on, at least 1 */
    int pus;              /* hardware threads on them */
    int numa_node;        /* of the first core; -1 unknown */
    bool shared;          /* more ranks than cores: others compute on these, too */
    char cpuset[256];     /* "0-3,8" */
    char mask[TOPO_MASK]; /* the same for topo_bind */
    char why[96];         /* why these cores, a few words */
    int devices;
    struct topo_device device[TOPO_RANK_GPUS];
    char nvlink[160];      /* where the links of its first GPU lead; empty: none */
    char nic[32];          /* nearest interface; empty: none */
    enum topo_path path;   /* to it, from the GPU or else from the cores */
    char net_devices[256]; /* interfaces to offer to UCX; empty: all of them */
};

/* The places of all `ranks` ranks of a node, by local rank. Cores near a rank's GPU come
 * first; ranks whose masks have cores in common share these out; no rank gets a core
 * outside its mask. Errors: ACCEL_EMISMATCH (two ranks with one device, a mask without a
 * core of this machine), ACCEL_ENOMEM. */
accel_status_t topo_map(const struct topo_machine *m, const struct topo_rank *rank,
                        int ranks, struct topo_place *place, accel_error_t *err);
/* The first two of `ranks` ranks of a node that were given the same device, in *a_out and
 * *b_out: ACCEL_EMISMATCH. topo_map asks it, too. */
accel_status_t topo_check_devices(const struct topo_rank *rank, int ranks, int *a_out,
                                  int *b_out, accel_error_t *err);
/* Must `ranks` ranks with masks of this size have cores in common? Slurm gives all ranks of
 * a node masks of one size: then they have one mask, or the machine would be too small. */
bool topo_masks_common(const struct topo_machine *m, const char *mask, int ranks);

/* Moves every thread of this process that has the affinity `from`, the caller's, to `to`;
 * others were bound by the program and stay. Errors: ACCEL_EOS (forbidden). */
accel_status_t topo_bind(const char *from, const char *to, accel_error_t *err);
/* Puts interface number `i` in place of the nearest one. */
void topo_use_nic(const struct topo_machine *m, int i, struct topo_place *place);
/* "GPU 0000:17:00.0 (80.0 GiB, 1980 MHz, 700 W), NVLink to local rank 1, NUMA 0, cores 0-3
 * (1/2 of the machine), nic mlx5_0 PIX"; returns buf. */
const char *topo_place_text(const struct topo_place *place, char *buf, size_t len);

#endif
