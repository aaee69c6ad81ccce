/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and validates the job's config with the user's rights, once per path. Its name
 * comes in; the config, its notes and the parser's table go out, or the reasons why it
 * is refused. Loads the parser when there is a file to read and at no other time.
 */
#include "srun_plugin/step/job_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "srun_plugin/messages.h"

/* Opens the parser that is installed next to this file. Not by name: a library path of
 * the user's must not choose it. Refuses one of another build, since both sides share
 * struct config. */
static bool load_parser(struct job_file *f)
{
    Dl_info self;
    char path[PATH_MAX];

    if (f->api)
        return true;
    if (!dladdr((void *)job_file_load, &self) || !self.dli_fname)
        return plugin_error(A0308, NULL, "ask the administrator to install accel again",
                            "cannot determine where the plugin was loaded from");
    const char *slash = strrchr(self.dli_fname, '/');
    int dir = slash ? (int)(slash - self.dli_fname + 1) : 0;
    /* The directory of this file, with its slash. */
    if (snprintf(path, sizeof(path), "%.*s%s", dir, self.dli_fname, CONFIG_API_FILE) >=
        (int)sizeof(path))
        return false;
    f->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct config_api *found =
        f->handle ? dlsym(f->handle, CONFIG_API_SYMBOL) : NULL;
    if (!found)
        return plugin_error(
            A0308, path, "ask the administrator to install it next to accel_spank.so",
            "cannot load the config reader: %s", dlerror());
    if (found->config_bytes != sizeof(struct config) ||
        strcmp(found->version, PACKAGE_VERSION) != 0)
        return plugin_error(A0308, path,
                            "ask the administrator to install both from one build",
                            "its version is %s, but accel_spank.so has version %s",
                            found->version, PACKAGE_VERSION);
    f->api = found;
    return true;
}

/* Reports all errors of the files, or `err` when it is not one of a file. */
static void say_problems(const struct config_diags *diags, const accel_error_t *err,
                         bool *site_failed_out)
{
    size_t said = 0;

    for (size_t i = 0; i < diags->count; i++) {
        if (!diags->item[i].is_error || !diags->item[i].text)
            continue;
        *site_failed_out |= diags->item[i].source == ORIGIN_SITE;
        plugin_lines("", diags->item[i].text);
        said++;
    }
    if (!said)
        plugin_report(err);
}

/* Copies the notes: the diagnostics are freed before they are shown. */
static void keep_notes(struct strbuf *notes, const struct config_diags *diags)
{
    strbuf_free(notes);
    for (size_t i = 0; i < diags->count; i++)
        if (diags->item[i].is_told)
            strbuf_printf(notes, "accel: %s\n", diags->item[i].text);
}

bool job_file_load(struct job_file *f, const char *site, const char *name,
                   const char *path, bool quiet)
{
    struct config_diags diags = { 0 };
    accel_error_t err = { 0 };

    if (f->ready && strcmp(path, f->path) == 0)
        return true;
    f->ready = false;
    if (!load_parser(f))
        return false;
    f->sources = (struct config_sources){ .job_path = name };
    f->api->sources_default(&f->sources, &f->paths);
    if (site[0]) {
        f->sources.site_path = site;
        f->sources.site_is_named = true;
    }
    if (f->api->resolve(&f->sources, &f->config, &diags, &err) == ACCEL_OK) {
        snprintf(f->path, sizeof(f->path), "%s", path);
        f->ready = true;
        keep_notes(&f->notes, &diags);
    } else if (!quiet) {
        say_problems(&diags, &err, &f->site_failed);
    }
    f->api->diags_free(&diags);
    return f->ready;
}

/* The job file is named by its absolute path, since the name as typed is not kept. */
const char *job_file_place(const struct job_file *f, const char *name, char *buf,
                           size_t len)
{
    struct config_sources named = f->sources;
    size_t count = 0, row = 0;
    const struct config_key *keys = f->api ? f->api->schema(&count) : NULL;

    named.job_path = f->path;
    while (row < count && (keys[row].section[0] || strcmp(keys[row].name, name) != 0))
        row++;
    if (row < count && f->config.origin[row] != ORIGIN_DEFAULT)
        return f->api->place(&f->config, &named, row, buf, len);
    snprintf(buf, len, "%s", f->path);
    return buf;
}

/* Goes through the parser's table, since accel_spank.so has none of its own. */
void job_file_value(const struct job_file *f, const char *name, char *buf, size_t len)
{
    size_t count = 0;
    const struct config_key *keys = f->api ? f->api->schema(&count) : NULL;

    buf[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i].name, name) == 0)
            f->api->value_text(&f->config, &keys[i], buf, len);
}

void job_file_close(struct job_file *f)
{
    strbuf_free(&f->notes);
    if (f->handle)
        dlclose(f->handle);
    f->handle = NULL;
    f->api = NULL;
}
