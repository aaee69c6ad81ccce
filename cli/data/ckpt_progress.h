/* SPDX-License-Identifier: Apache-2.0
 *
 * A bar on the terminal's stderr; nothing where stderr is no terminal.
 */
#ifndef ACCEL_CKPT_PROGRESS_H
#define ACCEL_CKPT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ckpt_progress {
    /* "exported", or what is being looked at */
    const char *what;
    /* bytes; or `counts`, "tensors", where that is not NULL */
    int64_t total, done;
    const char *counts;
    /* nothing is drawn: the output is for a program */
    bool off;
    /* when it was last drawn; 0: not yet */
    int64_t drawn;
};
/* `bytes` more are done. */
void ckpt_progress_add(struct ckpt_progress *p, int64_t bytes);
/* `done` of `total` are. */
void ckpt_progress_to(struct ckpt_progress *p, const char *what, int64_t done,
                      int64_t total);
/* A ckpt_progress_f; `user` is the progress. */
void ckpt_progress_read(void *user, const char *name, int64_t done, int64_t total);
/* Clears the line. */
void ckpt_progress_end(struct ckpt_progress *p);

#endif
