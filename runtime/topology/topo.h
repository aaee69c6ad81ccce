/* SPDX-License-Identifier: Apache-2.0
 *
 * topology/: which GPU, cores, NUMA node and network interface each rank of a node
 * uses. The machine is read once (hwloc, NVML) or taken from a record; everything after
 * that is a pure function from data to data. Only topo_bind changes anything.
 */
#ifndef ACCEL_TOPOLOGY_TOPO_H
#define ACCEL_TOPOLOGY_TOPO_H

#include "common/common.h"

enum {
    TOPO_GPUS = 64,      /* per node */
    TOPO_SLICES = 8,     /* MIG slices per GPU */
    TOPO_PEERS = 18,     /* GPUs to which one GPU has direct NVLinks */
    TOPO_RANK_GPUS = 16, /* per rank */
    TOPO_ID = 96,        /* "MIG-GPU-UUID/gi/ci" */
    TOPO_MASK = 2320,    /* hexadecimal mask of 8192 hardware threads, "0x...,0x..." */
};

/* ---- GPUs ------------------------------------------------------------------------ */

/* A MIG slice of a GPU. */
struct topo_slice {
    char uuid[TOPO_ID];
    int gpu_instance, compute_instance; /* -1 unknown */
    int64_t memory_bytes;               /* 0 unknown */
};

/* Why a GPU's clocks are reduced, with NVML's bit values. */
enum topo_reason {
    REASON_IDLE = 0x1,      /* nothing to do */
    REASON_SET = 0x2,       /* somebody set lower clocks */
    REASON_POWER_CAP = 0x4, /* at its power limit: normal under full load */
    REASON_HARDWARE = 0x8,  /* heat or power supply; the bits below may say which */
    REASON_SYNC = 0x10,     /* held to the slowest GPU of a group */
    REASON_DRIVER_HEAT = 0x20,
    REASON_HARDWARE_HEAT = 0x40,
    REASON_POWER_BRAKE = 0x80, /* the node's power supply asked for it */
    /* The ones that something should be done about */
    REASONS_SLOW = REASON_HARDWARE | REASON_DRIVER_HEAT | REASON_HARDWARE_HEAT |
                   REASON_POWER_BRAKE,
};
struct topo_clocks { /* 0 unknown */
    int sm_mhz, sm_max_mhz, memory_mhz, memory_max_mhz;
    int watts, limit_watts;
    unsigned reasons; /* of enum topo_reason */
};
/* "345 of 1980 MHz, memory 2619 of 2619 MHz, 71 of 700 W"; empty if nothing is known.
 * Returns buf. */
const char *topo_clocks_text(const struct topo_clocks *c, char *buf, size_t len);
/* "too hot: slowed down by its hardware; at its power limit"; returns buf. */
const char *topo_reasons_text(unsigned reasons, char *buf, size_t len);

struct topo_gpu {
    char bus_id[16]; /* "0000:17:00.0", lower case; empty: it does not answer */
    char uuid[TOPO_ID];
    char name[64];
    int64_t memory_bytes, memory_used_bytes; /* 0 unknown */
    bool mig; /* in MIG mode; it may not have slices yet */
    int slices;
    struct topo_slice slice[TOPO_SLICES];
    int nvlinks;        /* active ones */
    int nvlinks_switch; /* those of them that lead to an NVSwitch */
    /* Bus ids of the GPUs at the other ends. A cgroup may hide those GPUs. */
    int peers;
    char peer[TOPO_PEERS][16];
    struct topo_clocks clocks; /* when the GPU was read */
};
/* The GPUs of a node by index: NVML's order, or by bus id in a record. */
struct topo_gpus {
    bool known;  /* if false, `why` says why the GPUs are unknown */
    bool broken; /* the driver's library is there but does not work */
    char why[256];
    char driver[32];
    int count;
    struct topo_gpu gpu[TOPO_GPUS];
};

/* Those of this machine, from NVML. Never fails: not to know is one of the answers. */
void topo_gpus_find(struct topo_gpus *gpus_out);
/* Does an NVLink of it lead to the GPU with that bus id? */
bool topo_gpu_linked(const struct topo_gpu *gpu, const char *bus_id);

/* One GPU that is asked again during a run. NULL: NVML does not know that bus id. */
struct topo_watch;
struct topo_watch *topo_watch_open(const char *bus_id);
/* The REASONS_SLOW of this moment: one question to the driver, which waits
 * for no kernel. */
unsigned topo_watch_slow(const struct topo_watch *w);
void topo_watch_read(const struct topo_watch *w, struct topo_clocks *clocks_out);
void topo_watch_close(struct topo_watch *w); /* NULL is allowed */

/* A GPU or a slice of one, as one rank uses it. */
struct topo_device {
    int index;            /* in topo_gpus; -1: the node's GPUs are unknown */
    char bus_id[16];      /* empty: unknown */
    char id[TOPO_ID];     /* UUID of GPU or slice; if unknown, the word of the list */
    int64_t memory_bytes; /* 0 unknown */
    int sm_max_mhz, limit_watts; /* 0 unknown; a slice has no limit of its own */
};
/* Is it a slice of a GPU? */
bool topo_is_slice(const struct topo_device *d);

/* The GPU rule. With k visible devices, L local ranks and local rank l: k == 1 gives
 * device 0; k % L == 0 gives devices [l*k/L, (l+1)*k/L); anything else is
 * ACCEL_EMISMATCH with both numbers. visible: value of CUDA_VISIBLE_DEVICES (NULL:
 * unset); on_node: that of SLURM_GPUS_ON_NODE.
 * Without a GPU *count_out is 0. An empty list with on_node > 0 is ACCEL_EUNAVAIL
 * (hint: --gpu-bind=none). Never reads the environment. */
accel_status_t topo_gpu_map(const char *visible, int on_node, int local_rank,
                            int local_size, int *first_out, int *count_out,
                            accel_error_t *err);

/* ACCEL_EUNAVAIL for a step with GPUs whose list is unset (--gpu-bind=none), unless it
 * can open exactly as many as it was given: a program would take GPUs of other jobs. */
accel_status_t topo_check_unset(const struct topo_gpus *gpus, const char *visible,
                                int on_node, accel_error_t *err);
/* The device at index `at` of the list `visible`, whose words are: an index, the UUID
 * of a GPU or of a slice or the beginning of one, "MIG-GPU-UUID/gi/ci". NULL: GPU
 * number `at`. A GPU in MIG mode stands for its first slice, as in CUDA.
 * Errors: ACCEL_EUNAVAIL (no such device, several that begin so, no slice). */
accel_status_t topo_visible_device(const struct topo_gpus *gpus, const char *visible,
                                   int at, struct topo_device *device_out,
                                   accel_error_t *err);

/* ---- the machine ----------------------------------------------------------------- */

/* hwloc's tree with the devices in it, the network interfaces and the GPUs. */
struct topo_machine;

/* What is read of a machine. Its buses take longer than all the rest, and while they
 * are read the kernel lets no other process read them. */
enum topo_want {
    TOPO_CORES,   /* cores and NUMA nodes */
    TOPO_DEVICES, /* PCI devices and network interfaces, too */
    TOPO_GPUS_TOO /* and the GPUs, from NVML */
};

/* `record`: an hwloc XML file, whose PCI devices are the GPUs. NULL: this machine
 * (which $HWLOC_XMLFILE may describe). Nothing to free on failure. Errors:
 * ACCEL_ENOENT, ACCEL_ESYSTEM. */
accel_status_t topo_machine_open(struct topo_machine **machine_out, const char *record,
                                 enum topo_want want, accel_error_t *err);
void topo_machine_close(struct topo_machine *m);
const struct topo_gpus *topo_machine_gpus(const struct topo_machine *m);
/* NVIDIA GPUs on the node's buses, whether given to this step or not;
 * asks no driver. */
int topo_machine_gpus_present(const struct topo_machine *m);
/* "Intel(R) Xeon(R)..."; never NULL. */
const char *topo_machine_cpu(const struct topo_machine *m);
/* Name of network interface number `i`, NULL beyond the last one. */
const char *topo_machine_nic(const struct topo_machine *m, int i);
/* Affinity of the calling thread as a mask; of a record, the whole machine. */
accel_status_t topo_own_mask(const struct topo_machine *m, char mask_out[TOPO_MASK],
                             accel_error_t *err);

/* ---- the map --------------------------------------------------------------------- */

/* What a rank of the node was given: CPU mask and devices. */
struct topo_rank {
    char mask[TOPO_MASK];
    int devices;
    struct topo_device device[TOPO_RANK_GPUS];
};

/* The way to an interface, in the words of nvidia-smi topo: through one PCIe switch,
 * through several, through the host bridge, within the NUMA node, farther. */
enum topo_path { PATH_PIX, PATH_PXB, PATH_PHB, PATH_NODE, PATH_SYS, PATH_UNKNOWN };
const char *topo_path_name(enum topo_path path);

/* What the rank uses of the machine. */
struct topo_place {
    int cores;            /* physical cores this rank may compute on, at least 1 */
    int pus;              /* hardware threads on them */
    int numa_node;        /* of the first core; -1 unknown */
    bool shared;          /* more ranks than cores: other ranks compute on these, too */
    char cpuset[256];     /* "0-3,8" */
    char mask[TOPO_MASK]; /* the same as a mask, for topo_bind */
    char why[96];         /* why these cores, a few words */
    int devices;
    struct topo_device device[TOPO_RANK_GPUS];
    char nvlink[160];      /* where the NVLinks of its first GPU lead; empty: none */
    char nic[32];          /* nearest interface; empty: none */
    enum topo_path path;   /* to it, from the first GPU or, without one, the cores */
    char net_devices[256]; /* interfaces to offer to UCX; empty: all of them */
};

/* place_out[ranks]: the places of all ranks of a node, by local rank as rank[ranks]. A
 * rank gets cores near its GPU if its mask has any, and none outside its mask; ranks
 * whose masks overlap divide those cores among them. Errors: ACCEL_EMISMATCH (two ranks
 * with one device, a mask without a core of this machine), ACCEL_ENOMEM. */
accel_status_t topo_map(const struct topo_machine *m, const struct topo_rank *rank,
                        int ranks, struct topo_place *place_out, accel_error_t *err);
/* ACCEL_EMISMATCH if two ranks of a node were given the same device; *a_out and *b_out
 * are the first such pair. topo_map checks this, too. */
accel_status_t topo_check_devices(const struct topo_rank *rank, int ranks, int *a_out,
                                  int *b_out, accel_error_t *err);
/* Must `ranks` ranks with masks of this size overlap, because the machine is too small
 * for disjoint ones? Slurm gives all ranks of a node masks of one size, so they then
 * share one mask. */
bool topo_masks_common(const struct topo_machine *m, const char *mask, int ranks);

/* Moves every thread of this process whose affinity is `from`, the caller's
 * own, to `to`. Other threads were bound by the program and stay. Errors:
 * ACCEL_ESYSTEM (not allowed). */
accel_status_t topo_bind(const char *from, const char *to, accel_error_t *err);
/* Uses interface number `i` of m instead of the nearest one. */
void topo_use_nic(const struct topo_machine *m, int i, struct topo_place *place);
/* "GPU 0000:17:00.0 (80.0 GiB, 1980 MHz, 700 W), NVLink to local rank 1, NUMA 0, cores
 * 0-3 (1/2 of the machine), nic mlx5_0 PIX"; returns buf. */
const char *topo_place_text(const struct topo_place *place, char *buf, size_t len);

#endif
