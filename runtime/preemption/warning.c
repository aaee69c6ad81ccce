/* SPDX-License-Identifier: Apache-2.0
 *
 * The warning signal that accel requested from Slurm. Tasks start with the signal
 * ignored, until this program can handle it. In: $ACCEL_WARNING, "USR1@SECONDS": the
 * signal, and the time (seconds since 1970; 0: none) by which Slurm will have sent it.
 * Out: whether accel itself had the signal ignored, and a timer that replaces a warning
 * that came too early to be noticed. Prints nothing; a text in another form counts as
 * none.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "preemption/preemption.h"
#include "common/env_names.h"

/* Slurm may send the warning this many seconds before it is due. */
#define EARLY_SECONDS 90

static timer_t timer;
static bool armed;

/* Parses $ACCEL_WARNING. False: accel asked for no warning. */
static bool read_warning(int *sig_out, time_t *due_out)
{
    const char *text = getenv(ENV_WARNING);
    char *end;
    long long due;

    if (!text || strlen(text) < 6 || text[4] != '@' || text[5] < '0' || text[5] > '9')
        return false;
    errno = 0;
    due = strtoll(text + 5, &end, 10);
    if (errno || *end)
        return false;
    if (strncmp(text, "USR1", 4) != 0 && strncmp(text, "USR2", 4) != 0)
        return false;
    *sig_out = text[3] == '1' ? SIGUSR1 : SIGUSR2;
    *due_out = (time_t)due;
    return true;
}

bool warning_is_ours(int sig)
{
    int asked;
    time_t due;

    return read_warning(&asked, &due) && asked == sig;
}

/* An ignored signal leaves no trace, so nobody can tell whether the warning has been
 * sent. Near its time a timer sends it (again) when it was due; twice does no harm.
 * CLOCK_REALTIME: Slurm's time is that of the day. */
void warning_arm(int sig)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig };
    struct itimerspec when = { 0 };
    int asked;
    time_t due;

    /* A warning that is due later than this cannot have been sent yet:
     * no timer needed. */
    if (armed || !read_warning(&asked, &due) || asked != sig || due == 0 ||
        due - time(NULL) > EARLY_SECONDS)
        return;
    when.it_value.tv_sec = due;
    if (timer_create(CLOCK_REALTIME, &event, &timer) != 0)
        return;
    armed = timer_settime(timer, TIMER_ABSTIME, &when, NULL) == 0;
    if (!armed)
        timer_delete(timer);
}

void warning_disarm(void)
{
    if (armed)
        timer_delete(timer);
    armed = false;
}
