/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of parameters with their own learning rates and weight decays.
 */
#ifndef ACCEL_TRAINING_PARAMETER_GROUPS_H
#define ACCEL_TRAINING_PARAMETER_GROUPS_H

#include "handle/run.h"

/* Gives the parameters of run->units the learning rate and weight decay of their group,
 * freezes some, and lays the units out again. A0911: a group matches nothing, or
 * nothing is trained. */
accel_status_t groups_apply(accel_t *run, accel_error_t *err);
/* A number that identifies the set of parameters that the optimizer trains, for the
 * run's identity. */
uint64_t groups_trained(const accel_t *run, int optim);

#endif
