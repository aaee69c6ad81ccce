/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of Hugging Face models, by the keys of the families (family.h): read into
 * a config, and written from one. In: text or a path. Out: a config or text; never a
 * model.
 */
#ifndef ACCEL_MODELS_HF_CONFIG_H
#define ACCEL_MODELS_HF_CONFIG_H

#include "common/common.h"

/* Parses text[len] of a config.json; `where` names it in errors. `type`: the only
 * model_type to accept, NULL: that of any family. *config_out is set only on success.
 * Errors as accel_model_config. */
accel_status_t hf_config_parse(const char *text, size_t len, const char *where,
                               const char *type, accel_model_config_t *config_out,
                               accel_error_t *err);
/* The same of the file `path`, or of the config.json in the directory `path`. */
accel_status_t hf_config_read(const char *path, const char *type,
                              accel_model_config_t *config_out, accel_error_t *err);
/* Writes the model_type of a config.json to buf[len]; "" if it has none. Path and
 * errors as above. */
accel_status_t hf_config_type(const char *path, char *buf, size_t len,
                              accel_error_t *err);

/* Makes a config.json that the same transformers class reads back as this model.
 * `dtype`, such as "float32", is that of the weights stored with it. *text_out is one
 * malloc, freed by the caller. ACCEL_ENOMEM. */
accel_status_t hf_config_format(const accel_model_config_t *config, const char *dtype,
                                char **text_out, accel_error_t *err);
/* The same of a model; *text_out is NULL for a model that is not the library's. */
accel_status_t hf_config_text(const accel_module_t *root, const char *dtype,
                              char **text_out, accel_error_t *err);
/* The same in float32 on one line of ASCII, with the directory that the model was
 * opened from (NULL: none) as _name_or_path. */
accel_status_t hf_config_line(const accel_module_t *root, const char *from,
                              char **line_out, accel_error_t *err);

#endif
