/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt_kill [KILLS]: two ranks save in a tight loop; kill -9 of both at random moments.
 * After each, the newest complete checkpoint must load with the right content and be no
 * older than the last save that was reported done.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tap.h"
#include "tests/world/ckpt_world.h"

struct shared {
    volatile int64_t done; /* step of the last save that returned OK */
    volatile pid_t peer;
};

static void save_for_ever(struct shared *sh, const char *root, int64_t step)
{
    struct world w;
    accel_error_t err;

    world_start(&w, 2);
    if (w.rank == 0)
        sh->peer = w.pid[1];
    for (;; step++) {
        if (world_save(&w, root, step, 2, &err))
            _exit(1);
        if (w.rank == 0)
            sh->done = step;
    }
}

int main(int argc, char **argv)
{
    int kills = argc > 1 ? atoi(argv[1]) : 20, bad = 0, older = 0;
    struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    accel_error_t err = { 0 };
    char root[256];
    int64_t step = 1;

    if (sh == MAP_FAILED)
        return 1;
    world_tmpdir(root, "ckpt-kill");
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    sh->done = -1;
    for (int i = 0; i < kills; i++) {
        int64_t loaded, before = sh->done, begun;
        pid_t pid;

        sh->peer = 0;
        fflush(NULL);
        pid = fork();
        if (pid == 0)
            save_for_ever(sh, root, step);
        /* After a first save, at a random point of the next one or two. */
        begun = clock_ns();
        while (sh->done == before && waitpid(pid, NULL, WNOHANG) == 0)
            usleep(100);
        usleep((useconds_t)((clock_ns() - begun) / 1000 * (rand() % 2000) / 1000));
        kill(pid, SIGKILL);
        if (sh->peer)
            kill(sh->peer, SIGKILL);
        waitpid(pid, NULL, 0);
        loaded = world_load_newest(root, i % 3, 3, &err);
        if (loaded < 0 && sh->done >= 0) {
            tap_diag("kill %d: %s: %s", i, err.where, err.text);
            bad++;
        }
        older += loaded < sh->done;
        if (loaded >= step)
            step = loaded + 1;
    }
    tap_is_int(bad, 0, "%d kills: the newest complete checkpoint loads", kills);
    tap_is_int(older, 0, "no save that was reported done is lost (%lld saves)",
               (long long)step - 1);
    tap_ok(step > 1, "some saves got through");
    world_rmtree(root);
    return tap_done();
}
