/* SPDX-License-Identifier: Apache-2.0
 *
 * The config of the job: the file that --accel-config names, resolved and checked by
 * the parser, which is loaded for it. Runs in srun, sbatch and salloc, with the user's
 * rights; slurmstepd never loads the parser.
 */
#ifndef ACCEL_SRUN_PLUGIN_JOB_FILE_H
#define ACCEL_SRUN_PLUGIN_JOB_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "srun_plugin/config_api.h"

struct job_file {
    struct config config;
    /* Absolute path of the file. */
    char path[PATH_MAX];
    /* `config` is the valid content of `path`. */
    bool ready;
    /* It is not, and an error is about the site file. */
    bool site_failed;
    /* Sources of `config`. Their job_path is not kept: it may be Slurm's own string. */
    struct config_sources sources;
    /* Storage for the user and site path in `sources`. */
    struct config_paths paths;
    /* What the parser tells of a config that is valid, lines of "accel: ...". */
    struct strbuf notes;
    /* The parser; NULL: not loaded. */
    const struct config_api *api;
    void *handle;
};

/* Bytes of a canonical config at most, see config_encode. */
#define RESOLVED_MAX (16 * 1024)

/* Reads `name`, whose absolute path is `path`, unless it is the one we have. A file
 * that the user typed is named in messages as it was typed. `site`: path of the site
 * file; empty: the compiled-in one. `quiet`: at init, where a mistake is left to the
 * option to report. */
bool job_file_load(struct job_file *f, const char *site, const char *name,
                   const char *path, bool quiet);
/* The place that sets the top-level key `name`, else the job file. Returns buf. */
const char *job_file_place(const struct job_file *f, const char *name, char *buf,
                           size_t len);
/* Text of a key whose name occurs once in the schema; empty without a parser. */
void job_file_value(const struct job_file *f, const char *name, char *buf, size_t len);
/* Frees the notes and closes the parser. */
void job_file_close(struct job_file *f);

#endif
