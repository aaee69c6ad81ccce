/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for PMIx in a build without it: a refusal that says what to install. boot.c
 * calls it only if a launcher offered PMIx to more than one task or did not say how
 * many there are.
 */
#include "bootstrap/boot_impl.h"

accel_status_t boot_open_pmix(struct boot *b, accel_error_t *err)
{
    (void)b;
    return accel_fail_at(err, A0402, "bootstrap",
                         "install libpmix-dev (Debian) or pmix-devel (RHEL) and build "
                         "accel again, or start one task only",
                         "the launcher offers PMIx to find the other tasks, but this "
                         "accel was built without PMIx");
}
