/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of a checkpoint: what the run that wrote it has noted (model_config of the
 * trainer's text), as a config.json, and the tokenizer's files of the directory that
 * the model came from. Never an error for a checkpoint that does not say.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/data/ckpt_cmd.h"

static const char key[] = "\nmodel_config=";

accel_status_t ckpt_model_read(const accel_ckpt_t *c, const char *dtype,
                               struct ckpt_model *model_out, accel_error_t *err)
{
    size_t bytes = 0;
    const char *blob = accel_ckpt_blob(c, "trainer", &bytes), *line, *end, *text;
    json_t *o;

    line = blob ? memmem(blob, bytes, key, sizeof(key) - 1) : NULL;
    line = line ? line + sizeof(key) - 1 : NULL;
    end = line ? memchr(line, '\n', bytes - (size_t)(line - blob)) : NULL;
    o = end ? json_loadb(line, (size_t)(end - line), 0, NULL) : NULL;
    text = json_string_value(json_object_get(o, "model_type"));
    if (!text) {
        json_decref(o);
        return ACCEL_OK;
    }
    snprintf(model_out->type, sizeof(model_out->type), "%s", text);
    text = json_string_value(json_object_get(o, "_name_or_path"));
    if (text && strlen(text) < sizeof(model_out->from))
        snprintf(model_out->from, sizeof(model_out->from), "%s", text);
    json_object_del(o, "_name_or_path");
    json_object_set_new(o, "torch_dtype", json_string(dtype));
    model_out->config =
        json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    json_decref(o);
    return model_out->config ? ACCEL_OK
                             : accel_fail_nomem(err, "the text of config.json", bytes);
}

/* ---- tokenizers ------------------------------------------------------------------ */

/* A regular file, links followed: the caches of the Hub hold links. A new file that
 * could not be filled is removed. */
static bool copy_file(int from_dir, int to_dir, const char *name)
{
    const int in = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat sb;
    off_t at = 0;
    int out = -1;
    bool good;

    if (in >= 0 && fstat(in, &sb) == 0 && S_ISREG(sb.st_mode))
        out = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                     0666);
    good = out >= 0;
    while (good && at < sb.st_size)
        good = sendfile(out, in, &at, (size_t)(sb.st_size - at)) > 0;
    good = good && fsync(out) == 0;
    if (out >= 0) {
        close(out);
        if (!good)
            unlinkat(to_dir, name, 0);
    }
    if (in >= 0)
        close(in);
    return good;
}

int ckpt_model_tokenizer(const struct ckpt_model *m, const char *to)
{
    static const char *const files[] = { "tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "vocab.txt",
                                         "tokenizer.model",
                                         "chat_template.jinja" };
    const int from_dir =
                  *m->from ? open(m->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1,
              to_dir = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int copied = 0;

    for (size_t i = 0; from_dir >= 0 && to_dir >= 0 && i < ACCEL_ARRAY_SIZE(files); i++)
        copied += copy_file(from_dir, to_dir, files[i]);
    if (from_dir >= 0)
        close(from_dir);
    if (to_dir >= 0) {
        fsync(to_dir);
        close(to_dir);
    }
    return copied;
}
