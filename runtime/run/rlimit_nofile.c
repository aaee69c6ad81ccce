/* SPDX-License-Identifier: Apache-2.0
 *
 * The number of files that the process may open. While a run is open, the soft limit,
 * which suits programs that call select(), is raised to the hard limit: a rank has a
 * connection to each of its peers besides its files. Changes only the soft limit, and
 * restores it.
 */
#include <sys/resource.h>

#include "run/run_impl.h"
#include "handle/run.h"

/* A limit that cannot be raised is no error: it may suffice. */
void descriptors_raise(accel_t *run)
{
    struct rlimit now, raised;

    if (getrlimit(RLIMIT_NOFILE, &now) || now.rlim_cur >= now.rlim_max)
        return;
    /* The hard limit stays: a process without privileges could not raise it again. */
    raised = now;
    raised.rlim_cur = now.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        run->files_before = now.rlim_cur;
}

/* Not when the program has set a limit of its own meanwhile. */
void descriptors_restore(const accel_t *run)
{
    struct rlimit now;

    if (run->files_before == 0 || getrlimit(RLIMIT_NOFILE, &now) ||
        now.rlim_cur != now.rlim_max)
        return;
    now.rlim_cur = run->files_before;
    setrlimit(RLIMIT_NOFILE, &now);
}
