/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules inside fp8_config, parallelism_config and megatron_lm_config. Those of
 * deepspeed_config are in python/deepspeed.c.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/read/validate.h"

/* ---- fp8_config ------------------------------------------------------------------ */

/* Adds a note when a key of another engine than `backend` is given. */
static void note_other_engine(struct validator *v, const char *name,
                              const char *backend)
{
    const char *engine = config_fp8_engine(name);
    char cure[64];

    if (!config_is_given(v->cfg, name) || !strcasecmp(engine, backend))
        return;
    snprintf(cure, sizeof(cure), "remove it, or set fp8_backend: %s", engine);
    report_add(v->report, MESSAGE_NOTE, place_of(v, name, FP8_CONFIG), cure,
               "'%s' has no effect with fp8_backend %s", name, backend);
}

/* Without fp8 the whole map has no effect. Without a backend, nothing can be said about
 * keys that are for one of them. */
void check_fp8(struct validator *v)
{
    size_t n;
    const struct config_key *k = config_schema(&n);
    char backend[16], recipe[16];

    if (v->cfg->mixed_precision != PRECISION_FP8) {
        note_unused_map(v, FP8_CONFIG, "mixed_precision", "fp8");
        return;
    }
    config_get(v->cfg, "fp8_backend", backend, sizeof(backend));
    for (size_t i = 0; i < n && backend[0]; i++)
        if (!strcmp(k[i].section, section_name(FP8_CONFIG)) &&
            strcmp(k[i].name, "fp8_backend") != 0)
            note_other_engine(v, k[i].name, backend);
    if (!strcasecmp(backend, "AO") && v->cfg->fp8_recipe != FP8_CURRENT &&
        config_is_given(v->cfg, "fp8_recipe"))
        report_add(v->report, MESSAGE_NOTE, place_of(v, "fp8_recipe", ACCEL_PRECISION),
                   "remove it, or set fp8_backend: TE",
                   "'fp8_recipe: %s' has no effect with fp8_backend AO",
                   config_get(v->cfg, "fp8_recipe", recipe, sizeof(recipe)));
    if (!strcasecmp(backend, "AO") && v->cfg->distributed_type == DIST_FSDP &&
        config_get_int(v->cfg, "fsdp_version") == 2 &&
        v->cfg->cpu_ram_efficient_loading)
        report_add(v->report, A0126,
                   place_of(v, "fsdp_cpu_ram_efficient_loading", FSDP_CONFIG),
                   "set fsdp_cpu_ram_efficient_loading: false",
                   "fp8_backend AO does not work with fsdp_cpu_ram_efficient_loading");
}

/* ---- parallelism_config ---------------------------------------------------------- */

/* Can the type run this mesh? FSDP version 2 can run all of it. DeepSpeed has its own
 * sequence parallelism, but no tensor or context parallelism and no replicas. */
static bool has_engine(const struct config *cfg, const struct config_mesh *mesh)
{
    if (cfg->distributed_type == DIST_FSDP)
        return config_get_int(cfg, "fsdp_version") == 2;
    return cfg->distributed_type == DIST_DEEPSPEED && mesh->size[DIM_TP] == 1 &&
           mesh->size[DIM_CP] == 1 && mesh->size[DIM_DP_REPLICATE] == 1;
}

/* A mesh whose sizes are all 1 asks for nothing. */
void check_parallelism(struct validator *v)
{
    struct config_mesh mesh;

    config_mesh(v->cfg, 0, &mesh);
    if (mesh.total == 1)
        return;
    if (!has_engine(v->cfg, &mesh))
        report_add(v->report, A0133, v->job_section_at[PARALLELISM_CONFIG],
                   "set distributed_type: FSDP with fsdp_version: 2, or all sizes to 1",
                   "parallelism_config needs FSDP version 2");
    if (mesh.size[DIM_CP] > 1 && mesh.size[DIM_SP] > 1)
        report_add(v->report, A0131,
                   place_of(v, "parallelism_config_sp_size", PARALLELISM_CONFIG),
                   "set one of them to 1",
                   "cp_size %lld and sp_size %lld exclude each other: "
                   "both split the sequence",
                   (long long)mesh.size[DIM_CP], (long long)mesh.size[DIM_SP]);
    /* Without a sharded dimension there is no mesh to put tp or cp inside of. The sizes
     * are only worth checking if the shape is right. */
    if (mesh.size[DIM_DP_REPLICATE] > 1 && mesh.size[DIM_DP_SHARD] == 1 &&
        (mesh.size[DIM_TP] > 1 || mesh.size[DIM_CP] > 1))
        report_add(
            v->report, A0132,
            place_of(v, "parallelism_config_dp_replicate_size", PARALLELISM_CONFIG),
            "set dp_shard_size above 1, or dp_replicate_size to 1",
            "tp_size or cp_size with dp_replicate_size %lld needs "
            "dp_shard_size above 1",
            (long long)mesh.size[DIM_DP_REPLICATE]);
    else
        check_world(v);
}

/* ---- megatron_lm_config ---------------------------------------------------------- */

/* Only the sizes are checked here, since they decide how many processes may start. */
void check_megatron(struct validator *v)
{
    if (v->cfg->distributed_type == DIST_MEGATRON_LM)
        check_world(v);
    else
        note_unused_map(v, MEGATRON_LM_CONFIG, "distributed_type", "MEGATRON_LM");
}
