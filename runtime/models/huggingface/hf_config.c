/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads config.json by the keys of its family. Keys that change the computation are
 * accepted or refused; if such a key may be absent, its default is that of the model's
 * class in transformers. All other keys are ignored. Never looks at weights.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/family.h"
#include "models/huggingface/hf_config.h"

/* a config.json has a few KiB; a file beyond this is something else */
#define FILE_MAX_BYTES (16 << 20)
/* the hint of most refusals */
#define PLAIN "use a model without it"

/* ---- rotary positions ------------------------------------------------------------ */

/* `in` is the object of rope_scaling, or of rope_parameters; `context` is that of the
 * model. */
static void take_rope(struct hf_json *in, int context, accel_rope_t *rope)
{
    const char *key = hf_json_has(in, "rope_type") ? "rope_type" : "type";
    const char *kind = hf_json_text(in, key, "default");

    rope->theta = hf_json_real(in, "rope_theta", rope->theta, 1, 1e30);
    if (strcmp(kind, "default") == 0)
        return;
    if (strcmp(kind, "linear") != 0 && strcmp(kind, "llama3") != 0) {
        hf_json_refuse(in, key, "use a model with plain, linear or llama3 positions");
        return;
    }
    /* "linear" or "llama3", told apart by their second letter */
    rope->kind = *kind == 'l' && kind[1] == 'i' ? ACCEL_ROPE_LINEAR : ACCEL_ROPE_LLAMA3;
    /* 0 is no valid factor: it shows that the key is absent */
    rope->factor = hf_json_real(in, "factor", 0, 1e-9, 1e9);
    if (!in->status && !hf_json_has(in, "factor"))
        hf_json_size(in, "factor", 0); /* reports that it is missing */
    if (rope->kind == ACCEL_ROPE_LINEAR)
        return;
    rope->low_freq_factor = hf_json_real(in, "low_freq_factor", 1, 1e-9, 1e9);
    rope->high_freq_factor = hf_json_real(in, "high_freq_factor", 4, 1e-9, 1e9);
    rope->original_context =
        hf_json_size(in, "original_max_position_embeddings", context);
    if (!in->status && rope->high_freq_factor <= rope->low_freq_factor)
        in->status = accel_fail_at(
            in->err, A0640, in->where, "copy or download the file again",
            "high_freq_factor %g is not above low_freq_factor %g",
            (double)rope->high_freq_factor, (double)rope->low_freq_factor);
}

/* Rotary positions. Newer versions of transformers write rope_parameters, older ones
 * rope_scaling and rope_theta. Where both are there, transformers takes rope_scaling
 * and nothing of rope_parameters. What the one taken leaves out stands beside it. */
static void read_rope(struct hf_json *j, int context, accel_rope_t *rope)
{
    const char *key =
        hf_json_members(j, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    static const char partial[] = "partial_rotary_factor";
    struct hf_json in;
    bool inside;

    rope->theta = hf_json_real(j, "rope_theta", 10000, 1, 1e30);
    inside = hf_json_object(j, key, &in);
    if (inside)
        take_rope(&in, context, rope);
    if (inside && hf_json_real(&in, partial, 1, 0, 1e9) != 1)
        hf_json_refuse(&in, partial, PLAIN);
    /* the object has a status of its own: hand it back */
    j->status = in.status;
    if (!(inside && hf_json_has(&in, partial)) &&
        hf_json_real(j, partial, 1, 0, 1e9) != 1)
        hf_json_refuse(j, partial, PLAIN);
}

/* ---- keys ------------------------------------------------------------------------ */

/* Reads one key into its member. */
static void read_key(struct hf_json *j, const struct model_key *k,
                     accel_model_config_t *c)
{
    const char *key = hf_json_has(j, k->before)             ? k->before
                      : hf_json_has(j, k->key) || !k->after ? k->key
                                                            : k->after;
    const char *cure = k->cure ? k->cure : PLAIN;
    void *at = (char *)c + k->at;
    const void *like = (const char *)c + k->like;
    int size = k->like ? *(const int *)like : (int)k->otherwise;

    switch (k->kind) {
    case MODEL_SIZE:
        if (size || hf_json_has(j, key))
            *(int *)at = hf_json_size(j, key, size);
        return;
    case MODEL_DROPOUT:
        *(float *)at = hf_json_real(
            j, key, k->like ? (double)*(const float *)like : k->otherwise, 0, 1);
        return;
    case MODEL_EPS:
        *(float *)at = hf_json_real(j, key, k->otherwise, 1e-30, 1);
        return;
    case MODEL_FLAG:
        *(int *)at = hf_json_bool(j, key, k->otherwise != 0);
        return;
    case MODEL_ACTIVATION:
        *(accel_activation_t *)at = hf_json_activation(j, key, k->word);
        return;
    case MODEL_ROPE:
        read_rope(j, c->context, at);
        return;
    case MODEL_ONLY:
        if ((!k->head || k->head == c->head) &&
            hf_json_bool(j, key, k->otherwise != 0) != (k->otherwise != 0))
            hf_json_refuse(j, key, cure);
        return;
    case MODEL_ONLY_WORD:
        if (strcmp(hf_json_text(j, key, k->word), k->word) != 0)
            hf_json_refuse(j, key, cure);
    }
}

/* A head other than the base model's, from the class in `architectures`. */
static void read_head(struct hf_json *j, const struct model_family *f,
                      accel_model_config_t *c)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(f->architectures); i++)
        if (f->architectures[i].head &&
            hf_json_lists(j, "architectures", f->architectures[i].name))
            c->head = f->architectures[i].head;
}

/* The family of the model_type; NULL: noted in j. `type`: the only one to accept. */
static const struct model_family *read_type(struct hf_json *j, const char *type)
{
    /* a missing type and a wrong one have different messages */
    const char *found = hf_json_text(j, "model_type", NULL);
    const struct model_family *f = model_family_find(found);
    char shown[96], cure[128];

    if (!j->status && !found)
        j->status =
            accel_fail_at(j->err, A0640, j->where, "give the config.json of a model",
                          "the key model_type is missing");
    else if (!j->status && type && strcmp(found, type) != 0)
        j->status = accel_fail_at(
            j->err, A0642, j->where, "open it as that model, if accel has it",
            "model_type is %s, not %s", hf_json_shown(found, shown, 40), type);
    else if (!j->status && !f) {
        snprintf(cure, sizeof(cure), "use a %s model",
                 model_family_list(MODEL_TYPES, shown, sizeof(shown)));
        j->status =
            accel_fail_at(j->err, A0644, j->where, cure,
                          "accel does not support the model_type of config.json");
    }
    return j->status ? NULL : f;
}

accel_status_t hf_config_parse(const char *text, size_t len, const char *where,
                               const char *type, accel_model_config_t *config_out,
                               accel_error_t *err)
{
    const struct model_family *f = NULL;
    accel_model_config_t c = { 0 };
    struct hf_json j;

    if (!hf_json_open(&j, text, len, where, err))
        f = read_type(&j, type);
    if (hf_json_has(&j, "quantization_config"))
        hf_json_refuse(&j, "quantization_config", "use weights that are not quantised");
    if (f) {
        c.model_type = f->type;
        read_head(&j, f, &c);
        for (const struct model_key *k = f->keys; k->key; k++)
            read_key(&j, k, &c);
        if (f->read)
            f->read(&j, &c);
    }
    if (!j.status)
        *config_out = c;
    hf_json_close(&j);
    return j.status;
}

/* ---- files ----------------------------------------------------------------------- */

/* Text of the config.json that `path` is, or that lies in directory `path`.
 * *text_out is one malloc; where[where_len] gets the file's name. O_NONBLOCK:
 * a pipe must not hang. */
static accel_status_t read_file(const char *path, char *where, size_t where_len,
                                char **text_out, size_t *len_out, accel_error_t *err)
{
    struct stat sb;
    size_t n = 0;
    ssize_t got = 1;
    bool in_dir;
    int fd;

    *text_out = NULL;
    /* a directory stands for the config.json in it */
    in_dir = path && stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
    snprintf(where, where_len, "%s%s", path ? path : "", in_dir ? "/config.json" : "");
    fd = path ? open(where, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return accel_fail_at(err, A0643, where,
                             "give the config.json of a model, or its directory",
                             "cannot open: %s", path ? strerror(errno) : "no path");
    if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_size <= FILE_MAX_BYTES)
        *text_out = malloc((size_t)sb.st_size + 1);
    /* a file that shrinks meanwhile ends early, and its text will not parse */
    while (*text_out && got > 0 && n < (size_t)sb.st_size) {
        got = read(fd, *text_out + n, (size_t)sb.st_size - n);
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    if (*text_out && got >= 0) {
        *len_out = n;
        return ACCEL_OK;
    }
    free(*text_out);
    return accel_fail_at(err, A0640, where,
                         "give the config.json of a model, or its directory",
                         "not a readable regular file of at most 16 MiB");
}

accel_status_t hf_config_type(const char *path, char *buf, size_t len,
                              accel_error_t *err)
{
    char where[PATH_MAX], *text;
    struct hf_json j = { 0 };
    size_t bytes;
    accel_status_t st;

    ACCEL_CHECK(st, read_file(path, where, sizeof(where), &text, &bytes, err));
    st = hf_json_open(&j, text, bytes, where, err);
    if (st == ACCEL_OK) {
        snprintf(buf, len, "%s", hf_json_text(&j, "model_type", ""));
        st = j.status;
    }
    hf_json_close(&j);
    free(text);
    return st;
}

accel_status_t hf_config_read(const char *path, const char *type,
                              accel_model_config_t *config_out, accel_error_t *err)
{
    char where[PATH_MAX], *text;
    size_t len;
    accel_status_t st;

    ACCEL_CHECK(st, read_file(path, where, sizeof(where), &text, &len, err));
    st = hf_config_parse(text, len, where, type, config_out, err);
    free(text);
    return st;
}
