/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of training that a program or a config may switch on, as a table: what each
 * does in accel_prepare, and its lines in the text of a checkpoint. What it does in a
 * step is declared in its own header, because each part has its own point in the step.
 * All members may be NULL.
 */
#ifndef ACCEL_TRAINING_PARTS_H
#define ACCEL_TRAINING_PARTS_H

#include "handle/run.h"

struct training_part {
    /* Takes the rules from the program and the config, before units are laid out.
     * Errors: a rule that the run cannot follow. Not collective. */
    accel_status_t (*begin)(accel_t *run, accel_error_t *err);
    /* Write settings, which may change between two starts: those of one optimizer,
     * whose optim_suffix is `of`, and those of the run. */
    void (*put_optimizer)(const struct accel_optim *o, const char *of,
                          struct strbuf *b);
    void (*put_settings)(const accel_t *run, struct strbuf *b);
    /* Writes the progress of the part. */
    void (*put_progress)(const accel_t *run, struct strbuf *b);
    /* Can the run resume from the trainer state `text` of checkpoint `dir`? Changes
     * nothing. Not collective. */
    accel_status_t (*find)(const accel_t *run, const char *dir, const char *text,
                           accel_error_t *err);
    /* Restores the progress from `text`, which `find` has accepted. */
    void (*take_progress)(accel_t *run, const char *text);
};

extern const struct training_part local_sgd_part, ema_part, compression_part,
    moments_part, masters_part, gradients_part, loss_scale_part, fp8_part;

/* Each of these calls the member of all parts, in the order of the table. */
accel_status_t parts_begin(accel_t *run, accel_error_t *err);
void parts_put_optimizer(const struct accel_optim *o, const char *of, struct strbuf *b);
void parts_put_settings(const accel_t *run, struct strbuf *b);
void parts_put_progress(const accel_t *run, struct strbuf *b);
accel_status_t parts_find(const accel_t *run, const char *dir, const char *text,
                          accel_error_t *err);
void parts_take_progress(accel_t *run, const char *text);

#endif
