#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# DataLoader workers, however they are started: a signal to every process of a job, as Slurm
# sends it, ends none of them; the job loads on, saves, and ends them itself; and they end with
# a parent that was killed. ACCEL_LONG_TESTS=1: every method with every signal.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
need_program ps
tap_tmpdir
need_peers torch
unset RANK WORLD_SIZE ACCEL_RANK

below() { # PID: the processes that it has started, and theirs
    for child in $(ps -o pid= --ppid "$1"); do
        echo "$child"
        below "$child"
    done
}
# shellcheck disable=SC2317 # called by wait_until
runs() {
    grep -q ' runs$' out
}
# shellcheck disable=SC2317 # called by wait_until
gone() { # PID...
    for of; do
        ! kill -0 "$of" 2>/dev/null || return 1
    done
}
start() { # ARG...: $launcher, and the processes of the job in $all
    rm -rf worker.* out
    timeout "$HANG_S" "$python" "$ACCEL_SRC/tests/data/python/loads.py" "$@" >out 2>&1 </dev/null &
    launcher=$!
    kill_at_exit $launcher
    wait_until runs || bail_out "it does not run: $(cat out)"
    all=$(below $launcher)
}
row() { # SIGNAL METHOD PERSISTENT
    what="$2, $3, SIG$1"
    start "$2" "$3"
    for pid in $all; do
        kill -s "$1" "$pid" 2>/dev/null
    done
    wait $launcher
    is $? 85 "$what: the job ends 85" || diag "$(cat out)"
    like "$(cat out)" '^saved True' "$what: it has loaded on, and saved"
    like "$(cat out)" '^batch True init True$' "$what: the loader keeps the program's own function"
    [ -s worker.0 ] && [ -s worker.1 ]
    ok $? "$what: which the workers have called"
    [ "$3" = passing ] || is "$(cat worker.* | wc -l)" 2 "$what: there were two workers all along"
    unlike "$(cat out)" '^ERROR:|Traceback|leaked|killed by signal' "$what: nothing complains"
    # shellcheck disable=SC2086
    wait_until gone $all
    ok $? "$what: no process is left"
}
row TERM fork passing
row USR1 fork persistent
row TERM forkserver persistent
row TERM spawn persistent
if [ -n "${ACCEL_LONG_TESTS:-}" ]; then
    row TERM fork persistent
    row TERM forkserver passing
    row TERM spawn passing
    row USR1 forkserver persistent
    row USR1 spawn persistent
fi

start fork persistent
main=$(sed -n 's/ runs$//p' out)
kill -s KILL "$main"
# shellcheck disable=SC2086
wait_until gone $all
ok $? "workers end with a parent that was killed"

# ---- an older or newer torch, and no library: one line, and the program runs
cat >hook.py <<'HOOK'
import sys
import torch.utils.data
if sys.argv[1] == "without":
    del torch.utils.data.dataloader._MultiProcessingDataLoaderIter
import accel_slurm.workers
accel_slurm.workers.install()
accel_slurm.workers.install()
print(sum(map(int, torch.utils.data.DataLoader([1, 2], num_workers=int(sys.argv[2])))))
HOOK
out=$("$python" hook.py without 0 2>&1)
is "$?" 0 "a torch without the class runs" || diag "$out"
is "$(echo "$out" | grep -c '^accel: warning: this torch has no .*_MultiProcessingDataLoaderIter: data loader workers end at the first SIGTERM')" 1 \
    "and one line says what is lost"
out=$(ACCEL_ROOT=/nowhere "$python" hook.py with 1 2>&1)
is "$?" 0 "without libacceljob a loader with workers runs" || diag "$out"
is "$(echo "$out" | grep -c '^accel: warning: data loader workers end at the first SIGTERM: libacceljob.so cannot be loaded')" 1 \
    "and one line says so" || diag "$out"
out=$("$python" -c 'import accel_slurm.workers, sys
accel_slurm.workers.install()
assert "torch" not in sys.modules
import torch.utils.data
print(torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__init__.__module__)' 2>&1)
is "$out" accel_slurm.workers "a torch that is imported later is changed then"
done_testing
