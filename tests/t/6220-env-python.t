#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Python scripts as they are, from a clean shell, on 2 nodes with 2 ranks each: one that uses
# the standard library only; and, with ACCEL_LONG_TESTS=1, one of Hugging Face Accelerate and
# one of plain torch.distributed, whose losses are those of a single process. These two need
# packages of 2.9 GB; they are kept in the build tree.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
need_program python3
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
cluster_up --nodes 2 --mode mnt
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
cp "$ACCEL_SRC/tests/data/environ/meet.py" "$ACCEL_SRC/examples/torch_train.py" \
    "$ACCEL_SRC/examples/hf_train.py" .
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\nnum_machines: 2\nuse_cpu: true\n' >four.yaml
printf 'distributed_type: FSDP\nnum_processes: 4\nnum_machines: 2\nuse_cpu: true\n' >fsdp.yaml

clean() { # COMMAND...
    env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" HOME="$tap_tmp" timeout -k 5 "$HANG_S" "$@"
}
is "$(clean srun --accel-config=four.yaml python3 meet.py LOCAL_RANK ACCELERATE_USE_CPU 2>err | sort)" \
    "rank 0 of 4 sum 6 0 True
rank 1 of 4 sum 6 1 True
rank 2 of 4 sum 6 0 True
rank 3 of 4 sum 6 1 True" "2 x 2 ranks meet under srun" || diag "$(cat err)"
is "$(clean srun --export=NONE --accel-config=fsdp.yaml "$(command -v python3)" meet.py FSDP_VERSION \
    2>err | sort | uniq -c | sed 's/^ *//' | sort -k3)" \
    "1 rank 0 of 4 sum 6 1
1 rank 1 of 4 sum 6 1
1 rank 2 of 4 sum 6 1
1 rank 3 of 4 sum 6 1" "also with --export=NONE" || diag "$(cat err)"

# Without Slurm.
launch() { # ARG...
    clean "$ACCEL_BUILD/accel" launch --cpu "$@"
}
is "$(launch -n 3 meet.py GROUP_RANK 2>err | sort)" "rank 0 of 3 sum 3 0
rank 1 of 3 sum 3 0
rank 2 of 3 sum 3 0" "accel launch: three side by side" || diag "$(cat err)"
if command -v mpirun >/dev/null 2>&1; then
    is "$(launch -n 2 sh -c 'exec python3 meet.py LOCAL_RANK' 2>err | sort)" "rank 0 of 2 sum 1 0
rank 1 of 2 sum 1 1" "the same through mpirun" || diag "$(cat err)"
else
    skip 1 "mpirun is not installed"
fi
cat >fail.py <<'FAIL'
import os, subprocess, sys, time
if os.environ["RANK"] == "1":
    sys.exit(85)
subprocess.Popen(["sleep", sys.argv[1]])
time.sleep(100)
FAIL
mark=$(($$ + 200000)) # seconds that no other sleep has
launch -n 3 fail.py $mark >err 2>&1
is "$?" 85 "the first failure ends all, with its code" || diag "$(cat err)"
is "$(holders_of "$mark" cmdline)" "" "and nothing of them is left"
cat >late.py <<'LATE'
import os, signal, time
def held():
    return len(os.listdir(f"/proc/{os.getppid()}/fd"))
def save(*_):
    before = held()
    time.sleep(.5)
    print("saved", held() - before, file=open("saved", "w"))
    os._exit(0)
signal.signal(signal.SIGTERM, save)
if os.environ["RANK"] == "0" and os.fork() == 0:
    while True: time.sleep(.01)
LATE
launch -n 2 late.py
like "$(cat saved)" '^saved -?[01]$' "what a rank leaves behind has the time to save, for no more descriptors"
cat >term.py <<'TERM'
import signal, sys, time
signal.signal(signal.SIGTERM, lambda s, f: sys.exit(85))
open(sys.argv[1], "a").write("x")
time.sleep(100)
TERM
: >started
launch -n 2 term.py started &
launcher=$!
# shellcheck disable=SC2317
all_started() { [ "$(cat started)" = xx ]; }
wait_until all_started
pid=$(holders_of 'term.py' cmdline | sed -n 's|/proc/\([0-9]*\)/.*|\1|p' | while read -r p; do
    tr '\0' ' ' <"/proc/$p/cmdline" | grep -q '^[^ ]*accel launch' && echo "$p"
done | head -n 1)
kill -TERM "$pid"
wait "$launcher"
is "$?" 85 "a signal reaches all of them"

# The real ones.
venv=$ACCEL_BUILD/tests/python
has_torch() { "$venv/bin/python" -c 'import accelerate, torch.distributed' >/dev/null 2>&1; }
if ! has_torch && [ "${ACCEL_LONG_TESTS:-}" != 1 ]; then
    skip 8 "torch and accelerate are not in $venv; ACCEL_LONG_TESTS=1 installs them (2.9 GB)"
    done_testing
fi
has_torch || {
    python3 -m venv "$venv" && timeout 1500 "$venv/bin/pip" install -q torch accelerate
} >pip.log 2>&1
if ! has_torch; then
    diag "$(tail -n 5 pip.log)"
    skip 8 "torch and accelerate cannot be installed: is the package index reachable?"
    done_testing
fi
PATH=$venv/bin:$PATH
for script in torch_train hf_train; do
    clean python $script.py >one 2>err
    is "$(wc -l <one)" 5 "$script: five steps in one process" || diag "$(cat err)"
    clean srun --accel-config=four.yaml python $script.py >four 2>err
    is "$?" 0 "$script: unmodified on 2 nodes x 2 ranks" || diag "$(cat err)"
    is "$(sed -n 's/^rank \([0-9]\) of 4 .* ranks 6$/\1/p' four | sort | uniq -c | sed 's/^ *//')" "5 0
5 1
5 2
5 3" "$script: each rank did each step, and all were in the sums"
    is "$(sed 's/.*\(step.*loss [0-9.]*\).*/\1/' four | sort -u)" \
        "$(sed 's/.*\(step.*loss [0-9.]*\).*/\1/' one | sort -u)" \
        "$script: the losses are one process's"
done
done_testing
