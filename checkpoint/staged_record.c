/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of staged checkpoints: ROOT/.local-step_N.OWNER@ID, with the MANIFEST and, in
 * PLACES, the nodes that have the files. ROOT/staging has the ID, which names the
 * directories on the nodes: it stays when the root is renamed, and a copy of the root
 * gets another one. Reads and writes records; parts are local_part.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "save/ckpt_saving.h"
#include "common/path_dir.h"
#include "common/plain_file.h"

#define PLACES     "PLACES"
#define PLACES_BEG "accel-places 1\n"
#define PLACES_MAX (CKPT_WORLD_MAX * (CKPT_NODE_MAX + 8) + 8192)

/* ---- the ID ---------------------------------------------------------------------- */

/* The file is small, and a part of it is none. */
bool ckpt_staging_id(int rootfd, char id_out[CKPT_ID_MAX])
{
    int fd = ckpt_open_plain(rootfd, CKPT_STAGING_FILE);
    unsigned long long ino = 0;
    char text[64] = "", id[CKPT_ID_MAX];
    struct stat root, sb;
    bool good = fd >= 0 && fstat(rootfd, &root) == 0 && fstat(fd, &sb) == 0 &&
                pread_all(fd, text, sizeof(text) - 1, 0) > 0 &&
                text_scan(text, "%16[0-9a-f] %llu\n", id, &ino) == 2 &&
                strlen(id) == CKPT_ID_MAX - 1 && ino == (unsigned long long)root.st_ino;

    if (fd >= 0)
        close(fd);
    if (good)
        memcpy(id_out, id, sizeof(id));
    return good;
}

/* Nothing relies on the file after a loss of power: records have the ID, too. */
accel_status_t ckpt_staging_id_make(int rootfd, char id_out[CKPT_ID_MAX],
                                    accel_error_t *err)
{
    char text[64];
    struct stat root;
    uint64_t random;
    int fd, len;

    if (ckpt_staging_id(rootfd, id_out))
        return ACCEL_OK;
    if (fstat(rootfd, &root) || getrandom(&random, sizeof(random), 0) < 0)
        return accel_fail_at(err, A0801, CKPT_STAGING_FILE, "try again",
                             "cannot make up an ID: %m");
    snprintf(id_out, CKPT_ID_MAX, "%016" PRIx64, random);
    fd = plain_open(rootfd, CKPT_STAGING_FILE, O_WRONLY | O_CREAT | O_TRUNC);
    len = snprintf(text, sizeof(text), "%s %llu\n", id_out,
                   (unsigned long long)root.st_ino);
    if (fd < 0 || pwrite_all(fd, text, (size_t)len, 0)) {
        accel_fail_at(err, A0801, CKPT_STAGING_FILE, "check the disk and the quota",
                      "cannot write: %m");
        if (fd >= 0)
            close(fd);
        return ACCEL_EIO;
    }
    close(fd);
    return ACCEL_OK;
}

/* ---- places ---------------------------------------------------------------------- */

void ckpt_node_name(char name_out[CKPT_NODE_MAX])
{
    char name[CKPT_NODE_MAX] = "";

    if (gethostname(name, sizeof(name) - 1) || !ckpt_word_ok(name, sizeof(name)))
        strcpy(name, "?");
    memcpy(name_out, name, sizeof(name));
}

/* Durable before the commit, which makes the directory so. */
accel_status_t ckpt_places_write(const struct accel_ckpt_saving *g, const char *nodes,
                                 accel_error_t *err)
{
    struct strbuf b = { 0 };
    accel_status_t st = ACCEL_OK;
    int fd;

    strbuf_printf(&b, PLACES_BEG);
    for (int f = 0; f < g->m.world; f++)
        strbuf_printf(&b, "node %s\n", nodes + (size_t)f * CKPT_NODE_MAX);
    strbuf_printf(&b, "local %s", g->local);
    if (b.failed) {
        strbuf_free(&b);
        return accel_fail_nomem(err, "a list of nodes", PLACES_MAX);
    }
    fd = TEMP_FAILURE_RETRY(openat(g->commit.tmpfd, PLACES,
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                   0666));
    if (fd < 0 || pwrite_all(fd, b.s, b.len, 0))
        st = accel_fail_at(err, A0801, PLACES, "check the disk and the quota",
                           "cannot write: %m");
    ACCEL_TRY(st, ckpt_fsync(fd, PLACES, err));
    if (fd >= 0 && close(fd) && !st)
        st = accel_fail_at(err, A0801, PLACES, "check the disk", "close: %m");
    strbuf_free(&b);
    return st;
}

bool ckpt_places_parse(struct ckpt_places *p_out, const char *text, int world)
{
    const char *at = text + strlen(PLACES_BEG);
    struct ckpt_places *p = p_out;

    *p = (struct ckpt_places){ .local = "" };
    if (strncmp(text, PLACES_BEG, strlen(PLACES_BEG)) != 0)
        return true;
    p->node = calloc((size_t)world, sizeof(*p->node));
    if (!p->node)
        return false;
    for (int f = 0; f < world; f++) {
        int used = 0;

        if (text_scan(at, "node %64s%n", p->node[f], &used) != 1 || at[used] != '\n')
            break;
        at += used + 1;
    }
    if (strncmp(at, "local ", 6) == 0)
        p->local = at + 6;
    return true;
}

/* ---- reading --------------------------------------------------------------------- */

/* A file of the record. */
static accel_status_t record_file(const char *root, const char *record,
                                  const char *name, int64_t most, char **text_out,
                                  size_t *len_out, accel_error_t *err)
{
    int rootfd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int dir = rootfd >= 0 ? ckpt_open_dir(rootfd, record) : -1, error = errno;
    char where[sizeof(((accel_error_t *)NULL)->where)];
    accel_status_t st;

    snprintf(where, sizeof(where), "%.120s/%.100s/%s", root, record, name);
    if (rootfd < 0)
        st = ckpt_fail_root(err, root, "cannot open", error);
    else if (dir < 0)
        st = ckpt_fail_access(err, where, "cannot open", error);
    else
        st = ckpt_read_file(dir, name, where, "cannot open", most, text_out, len_out,
                            err);
    if (dir >= 0)
        close(dir);
    if (rootfd >= 0)
        close(rootfd);
    return st;
}

accel_status_t ckpt_record_read(const char *root, const char *record, char **text_out,
                                size_t *len_out, accel_error_t *err)
{
    return record_file(root, record, "MANIFEST", CKPT_MANIFEST_MAX, text_out, len_out,
                       err);
}

/* Older releases wrote none, and a damaged one proves nothing. */
accel_status_t ckpt_places_read(const char *root, const char *record, char **text_out,
                                size_t *len_out, accel_error_t *err)
{
    accel_status_t st =
        record_file(root, record, PLACES, PLACES_MAX, text_out, len_out, err);

    if (st != ACCEL_ECORRUPT)
        return st;
    *text_out = calloc(1, 1);
    *len_out = 0;
    return *text_out ? ACCEL_OK : accel_fail_nomem(err, "a list of nodes", 1);
}

/* ---- records --------------------------------------------------------------------- */

void ckpt_staged_name(char name_out[CKPT_DIR_MAX], int64_t step, const char *owner,
                      const char *id)
{
    char text[64];

    ckpt_step_name(text, step);
    snprintf(name_out, CKPT_DIR_MAX, CKPT_STAGED_PREFIX "%s.%s@%s", text, owner, id);
}

/* The step of ".local-step_N.OWNER", or -1. */
static int64_t step_of_record(const char *name)
{
    const char *step = name + strlen(CKPT_STAGED_PREFIX), *dot = strchr(step, '.');
    char text[64];

    if (!dot || (size_t)(dot - step) >= sizeof(text))
        return -1;
    snprintf(text, sizeof(text), "%.*s", (int)(dot - step), step);
    return ckpt_step_of_name(text);
}

/* for qsort */
static int newest_first(const void *pa, const void *pb)
{
    const accel_ckpt_staged_t *a = pa, *b = pb;

    return (a->step < b->step) - (a->step > b->step);
}

accel_status_t accel_ckpt_list_staged(const char *root, accel_ckpt_staged_t **list_out,
                                      size_t *count_out, accel_error_t *err)
{
    char(*names)[CKPT_DIR_MAX] = NULL;
    int fd = TEMP_FAILURE_RETRY(open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    accel_ckpt_staged_t *list = NULL;
    size_t n = 0, used = 0;
    accel_status_t st = ACCEL_OK;

    if (fd >= 0)
        st = ckpt_list_names(fd, CKPT_STAGED_PREFIX "step_", &names, &n, err);
    else if (errno != ENOENT)
        st = ckpt_fail_root(err, root, "cannot open", errno);
    if (fd >= 0)
        close(fd);
    if (!st && n > 0) {
        list = calloc(n, sizeof(*list));
        if (!list)
            st = accel_fail_nomem(err, "the list", n * sizeof(*list));
    }
    for (size_t i = 0; !st && i < n; i++) {
        list[used].step = step_of_record(names[i]);
        snprintf(list[used].name, sizeof(list[used].name), "%s", names[i]);
        used += list[used].step >= 0;
    }
    free(names);
    if (st)
        return st;
    if (used)
        qsort(list, used, sizeof(*list), newest_first);
    *list_out = list;
    *count_out = used;
    return ACCEL_OK;
}

/* Trash that is left is no record any more. */
accel_status_t accel_ckpt_unstage(const char *root, const char *name,
                                  accel_error_t *err)
{
    int fd;
    accel_status_t st = path_open_dir(root, &fd, err);

    if (st)
        return st;
    if (fd < 0 || (ckpt_trash(fd, name) != 0 &&
                   faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0))
        st = accel_fail_at(err, A0846, name, "remove it manually",
                           "cannot delete the record of a staged checkpoint: %m");
    if (fd >= 0)
        close(fd);
    return st;
}

accel_status_t accel_ckpt_staged_away(const char *root, const char *name, char *buf,
                                      size_t len, accel_error_t *err)
{
    int fd;
    accel_status_t st = path_open_dir(root, &fd, err);

    if (st)
        return st;
    snprintf(buf, len, CKPT_AWAY_PREFIX "%s", name + strlen(CKPT_STAGED_PREFIX));
    if (fd < 0 || TEMP_FAILURE_RETRY(renameat(fd, name, fd, buf)))
        st = accel_fail_at(err, A0833, name, "make the directory writable",
                           "cannot move the record of a staged checkpoint aside: %m");
    else
        st = ckpt_fsync(fd, root, err);
    if (fd >= 0)
        close(fd);
    return st;
}

accel_status_t accel_ckpt_staged_run(const char *root, const char *name, char *buf,
                                     size_t len, accel_error_t *err)
{
    char where[sizeof(err->where)], *text = NULL;
    struct ckpt_manifest m = { 0 };
    size_t bytes = 0;
    accel_status_t st = ckpt_record_read(root, name, &text, &bytes, err);

    snprintf(where, sizeof(where), "%.120s/%.100s/MANIFEST", root, name);
    ACCEL_TRY(st, ckpt_manifest_parse(&m, text, bytes, false, where, err));
    if (!st)
        snprintf(buf, len, "%s", m.run_id);
    ckpt_manifest_free(&m);
    free(text);
    return st;
}
