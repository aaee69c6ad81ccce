/* SPDX-License-Identifier: Apache-2.0
 *
 * save_kill [KILLS [SEED]]: trainings of 1, 2 and 4 ranks in turns, which save each step,
 * at once and in the background in turns; kill -9 of one rank or of all at random
 * moments, also while they begin. What is there afterwards is whole and has the weights
 * of its step, no save that was reported is lost, and the next life begins with the
 * newest. Then the same of a training whose saves go to the nodes first: there the
 * newest may be one that the next life copies.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/saves_world.h"
#include "tests/tap.h"
#include "tests/world/fork_world.h"

enum { ROWS = 12000 }; /* 1.9 MB of weights */

static uint64_t state;

static int draw(int n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)((state >> 11) % (uint64_t)n);
}

struct tally {
    int lost, damaged, elsewhere, ended, saves, copies, kills[2];
};

/* Step of the newest checkpoint that is on the nodes, -1; saves to the nodes are
 * reported like others. */
static int64_t newest_staged(void)
{
    accel_ckpt_staged_t *list = NULL;
    int64_t step = -1;
    size_t n = 0;

    if (accel_ckpt_list_staged(saves_root, &list, &n, NULL) == ACCEL_OK && n > 0)
        step = list[0].step;
    free(list);
    return step;
}

/* Until the ranks are there and have saved once more, or their parent has ended. */
static bool await_save(pid_t pid, const struct saves_life *life)
{
    for (;;) {
        bool there = saves_said->saved > saves_said->begun;

        for (int r = 0; r < life->ranks; r++)
            there = there && saves_said->pid[r] != 0;
        if (there)
            return true;
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return false;
        usleep(200);
    }
}

/* At a random point of the next save or two; one time in four while the run begins. All
 * ranks, which end with their parent, or one of them. False: it ended by itself. */
static bool kill_some(pid_t pid, const struct saves_life *life)
{
    const int whom = draw(life->ranks + 1);

    if (draw(4) == 0) {
        usleep((useconds_t)draw(60000));
        return kill(pid, SIGKILL) == 0;
    }
    if (!await_save(pid, life))
        return false;
    usleep((useconds_t)draw(40000));
    kill(whom == life->ranks ? pid : saves_said->pid[whom], SIGKILL);
    return true;
}

static void one_kill(int i, bool local, int64_t *newest, struct tally *t)
{
    static const int worlds[] = { 1, 2, 4 };
    const struct saves_life life = { .ranks = worlds[i / 2 % 3],
                                     .steps = 1000000,
                                     .rows = ROWS,
                                     .background = i % 2 == 1,
                                     .local = local,
                                     .keep = 2 };
    int64_t now;
    pid_t pid;

    saves_said->saved = saves_said->begun = -1;
    for (int r = 0; r < SAVES_RANKS; r++)
        saves_said->pid[r] = 0;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        _exit(saves_live(&life, HANG_S) > 128 ? 0 : 1);
    t->ended += !kill_some(pid, &life);
    while (waitpid(-1, NULL, 0) > 0) /* the ranks as well: see main */
        ;
    now = saves_newest(saves_root, ROWS);
    t->damaged += now == -2;
    if (now != -2 && newest_staged() > now) {
        now = newest_staged();
        t->copies++;
    }
    t->lost += now < saves_said->saved || now < *newest;
    t->elsewhere +=
        saves_said->begun >= 0 && saves_said->begun != (*newest < 0 ? 0 : *newest);
    t->saves += now > *newest ? (int)(now - *newest) : 0;
    t->kills[life.background]++;
    if (now != -2)
        *newest = now;
}

static void campaign(int kills, bool local)
{
    struct tally t = { 0 };
    int64_t newest = -1;

    for (int i = 0; i < kills && !t.ended; i++)
        one_kill(i, local, &newest, &t);
    tap_is_int(t.ended, 0, "%d kills of runs that save at once, %d in the background%s",
               t.kills[0], t.kills[1], local ? ", to the nodes" : "");
    if (local)
        tap_ok(t.copies > kills / 8, "%d lives begin with a copy", t.copies);
    tap_is_int(t.damaged, 0, "all that is there is whole (%d saves)", t.saves);
    tap_is_int(t.lost, 0, "no save that was reported done is lost");
    tap_is_int(t.elsewhere, 0, "each life begins with the newest");
    tap_ok(t.saves > kills / 4, "saves got through");
}

int main(int argc, char **argv)
{
    const int kills = argc > 1 ? atoi(argv[1]) : 24;

    state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
    if (!saves_new())
        tap_skip_all("no directory for temporary files");
    /* orphans come to this process, which waits for their end */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    campaign(kills, false);
    saves_forget();
    campaign(kills, true);
    saves_end();
    return tap_done();
}
