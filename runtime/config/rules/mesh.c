/* SPDX-License-Identifier: Apache-2.0
 *
 * parallelism_config and the sizes of megatron_lm_config against the number of
 * processes. The same check runs before the step with the planned number, and at its
 * start with the real one.
 */
#include <stdio.h>
#include <string.h>

#include "config/read/validate.h"

/* Short name and key of each dimension, in mesh order. */
static const struct {
    const char *dim, *key;
} dims[MESH_DIMS] = {
    [DIM_DP_REPLICATE] = { "dp_replicate", "parallelism_config_dp_replicate_size" },
    [DIM_DP_SHARD] = { "dp_shard", "parallelism_config_dp_shard_size" },
    [DIM_CP] = { "cp", "parallelism_config_cp_size" },
    [DIM_SP] = { "sp", "parallelism_config_sp_size" },
    [DIM_TP] = { "tp", "parallelism_config_tp_size" },
};

const char *mesh_dim_name(enum mesh_dim dim)
{
    return dims[dim].dim;
}

/* a * b, but never more than 2^40. That is larger than any number of processes, and no
 * product can overflow. */
static int64_t times(int64_t a, int64_t b)
{
    const int64_t most = (int64_t)1 << 40;

    return b > most / a ? most : a * b;
}

/* `others` is exact: total and data_parallel are products of the same sizes, unless the
 * cap of times() was hit. */
void config_mesh(const struct config *cfg, int64_t world, struct config_mesh *mesh_out)
{
    mesh_out->total = 1;
    for (int i = 0; i < MESH_DIMS; i++) {
        mesh_out->size[i] = config_get_int(cfg, dims[i].key);
        mesh_out->total = times(mesh_out->total, mesh_out->size[i]);
    }
    /* No mesh asked for: all ranks are replicas. */
    if (mesh_out->total == 1 && world > 1)
        mesh_out->total = mesh_out->size[DIM_DP_REPLICATE] = world;
    mesh_out->data_parallel =
        times(mesh_out->size[DIM_DP_REPLICATE], mesh_out->size[DIM_DP_SHARD]);
    mesh_out->others = mesh_out->total / mesh_out->data_parallel;
}

/* Writes "dp_shard 2 x cp 2 = 4"; dimensions of size 1 are left out. */
static void mesh_text(const struct config_mesh *mesh, char *buf, size_t len)
{
    size_t used = 0;

    for (int i = 0; i < MESH_DIMS && used < len; i++)
        if (mesh->size[i] > 1)
            used +=
                (size_t)snprintf(buf + used, len - used, "%s%s %lld", used ? " x " : "",
                                 dims[i].dim, (long long)mesh->size[i]);
    if (used < len)
        snprintf(buf + used, len - used, " = %lld", (long long)mesh->total);
}

/* For the other types check_parallelism has refused a mesh already. */
static bool has_mesh(const struct config *cfg)
{
    return cfg->distributed_type == DIST_FSDP ||
           cfg->distributed_type == DIST_DEEPSPEED;
}

/* The key that a message about the product points to: the innermost dimension (tp
 * first) whose size is above 1. */
static const char *mesh_key(const struct config *cfg)
{
    for (int i = MESH_DIMS - 1; i >= 0; i--)
        if (config_get_int(cfg, dims[i].key) > 1)
            return dims[i].key;
    return dims[DIM_DP_REPLICATE].key;
}

/* What does not fit, for one of two callers: a message of the validator, or an error of
 * the runtime. */
struct misfit {
    enum message code;
    const char *key;
    char text[256], cure[128];
};

/* Does the product of the mesh differ from `world`? If so, *misfit_out says how. */
static bool mesh_misfit(const struct config *cfg, int64_t world,
                        struct misfit *misfit_out)
{
    struct config_mesh mesh;
    char product[128];

    config_mesh(cfg, world, &mesh);
    /* A mesh of size 1 was not asked for, so it cannot misfit. */
    if (!has_mesh(cfg) || mesh.total == world || mesh.total == 1)
        return false;
    mesh_text(&mesh, product, sizeof(product));
    misfit_out->code = A0130;
    misfit_out->key = mesh_key(cfg);
    snprintf(misfit_out->text, sizeof(misfit_out->text),
             "the sizes of parallelism_config do not fill %lld processes: %s",
             (long long)world, product);
    snprintf(misfit_out->cure, sizeof(misfit_out->cure),
             "make the product of the sizes equal %lld", (long long)world);
    return true;
}

/* A size of Megatron's; 1 when it is not given. */
static int64_t size_of(const struct config *cfg, const char *key)
{
    int64_t n = config_get_int(cfg, key);

    return n > 0 ? n : 1;
}

/* Megatron splits the processes into whole copies of the model: of tp x pp x cp ranks
 * for the dense part, and of etp x pp x ep ranks for the experts. Both must divide
 * `world`. etp is tp unless it is given. */
static bool megatron_misfit(const struct config *cfg, int64_t world,
                            struct misfit *misfit_out)
{
    int64_t tp = size_of(cfg, "megatron_lm_tp_degree");
    int64_t pp = size_of(cfg, "megatron_lm_pp_degree");
    int64_t cp = size_of(cfg, "megatron_lm_context_parallel_size");
    int64_t ep = size_of(cfg, "megatron_lm_expert_model_parallel_size");
    int64_t etp = config_get_int(cfg, "megatron_lm_expert_tensor_parallel_size");
    int64_t model = times(times(tp, pp), cp);
    int64_t experts = times(times(etp > 0 ? etp : tp, pp), ep);

    if (cfg->distributed_type != DIST_MEGATRON_LM)
        return false;
    misfit_out->code = A0140;
    misfit_out->key = pp > 1 ? "megatron_lm_pp_degree" : "megatron_lm_tp_degree";
    snprintf(misfit_out->cure, sizeof(misfit_out->cure),
             "choose sizes whose product divides the number of processes");
    if (world % model)
        snprintf(misfit_out->text, sizeof(misfit_out->text),
                 "%lld processes are not a multiple of tp %lld x pp %lld "
                 "x context %lld = %lld",
                 (long long)world, (long long)tp, (long long)pp, (long long)cp,
                 (long long)model);
    else if (world % experts)
        snprintf(misfit_out->text, sizeof(misfit_out->text),
                 "%lld processes are not a multiple of expert tensor %lld x pp %lld x "
                 "expert %lld = %lld",
                 (long long)world, (long long)(etp > 0 ? etp : tp), (long long)pp,
                 (long long)ep, (long long)experts);
    else
        return false;
    return true;
}

/* The planned number of processes; 0 (as many as are started) is checked by
 * config_check_world later. */
void check_world(struct validator *v)
{
    struct misfit m;
    int64_t world = v->cfg->num_processes;

    if (world > 0 &&
        (mesh_misfit(v->cfg, world, &m) || megatron_misfit(v->cfg, world, &m)))
        report_add(v->report, m.code,
                   place_of(v, m.key,
                            m.code == A0130 ? PARALLELISM_CONFIG : MEGATRON_LM_CONFIG),
                   m.cure, "%s", m.text);
}

/* At the start of a run, where `world` is what was really started; every rank
 * fails alike. */
accel_status_t config_check_world(const struct config *cfg, int64_t world,
                                  accel_error_t *err)
{
    struct misfit m;
    char where[256];

    if (!mesh_misfit(cfg, world, &m) && !megatron_misfit(cfg, world, &m))
        return ACCEL_OK;
    config_where(cfg, m.key, where, sizeof(where));
    return accel_fail_at(err, m.code, where, m.cure, "%s", m.text);
}
