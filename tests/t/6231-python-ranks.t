#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel_slurm with two ranks of torch.distributed under accel launch: a signal to one of them
# stops both at the same step, loops of different lengths end, and calls that do not fit each
# other are an error on all ranks.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/peers.sh
. "$(dirname "$0")/peers.sh"
[ -f "$ACCEL_BUILD/.libs/libacceljob.so" ] || skip_all "libacceljob is not built"
tap_tmpdir
need_peers torch
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n' >two.yaml
# accel launch takes the first python3 of PATH.
PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH

# shellcheck disable=SC2317 # called by wait_until
both_run() { # NAME RANK...
    shift_name=$1
    shift
    for of; do
        grep -q ' runs$' "$shift_name.$of" 2>/dev/null || return 1
    done
}
uneven() { # NAME PAIRS RANKS-THAT-RUN [SIGNAL:RANK]...: $rc
    name=$1 ranks=$3
    rm -f go
    # A shell has its background programs ignore SIGINT.
    # shellcheck disable=SC2086
    timeout "$HANG_S" env --default-signal=INT "$ACCEL_BUILD/accel" launch --config two.yaml \
        "$ACCEL_SRC/tests/data/python/uneven.py" "$name" $2 >"$name.out" 2>&1 </dev/null &
    launcher=$!
    kill_at_exit $launcher KILL
    shift 3
    # shellcheck disable=SC2086
    wait_until both_run "$name" $ranks || bail_out "$name does not run: $(cat "$name.out")"
    for notice; do
        kill -s "${notice%:*}" "$(sed -n 's/ runs$//p' "$name.${notice#*:}")"
    done
    : >go
    wait $launcher
    rc=$?
}
ends() { # NAME RANK: "STEPS saves [...]" of its last loop
    sed -n 's/.* leaves after //p' "$1.$2" | tail -n 1
}
for signals in TERM:0 USR1:1 'USR1:0 TERM:1'; do
    name=$(echo "$signals" | tr ' :' '__')
    # shellcheck disable=SC2086
    uneven "$name" 100000000,100000000 '0 1' $signals
    is $rc 85 "$signals: both end 85" || diag "$(cat "$name.out")"
    like "$(ends "$name" 0)" '^([0-9]+) saves \[\1\]$' "$signals: rank 0 stops at a step, and saves it"
    is "$(ends "$name" 1)" "$(ends "$name" 0)" "$signals: rank 1 the same one"
    is "$(grep -c '^accel: stopped' "$name.out")" 1 "$signals: of which one rank tells, once"
done
uneven interrupt 100000000,100000000 '0 1' INT:0 INT:1
is $rc 75 "Ctrl-C: both end 75" || diag "$(cat interrupt.out)"
is "$(ends interrupt 1)" "$(ends interrupt 0)" "Ctrl-C: at the same step"

# The rank that ends first waits for the other one, also after no step at all.
uneven lengths '3,40 40,3 0,7 7,0 0,0 5,5' '0 1'
is $rc 0 "loops of different lengths end" || diag "$(cat lengths.out)"
for rank in 0 1; do
    is "$(grep -c finished lengths.$rank)" 6 "all of them, on rank $rank"
done
# Rank 1 has finished when the signal comes: it stops nothing, the other runs to its end.
uneven late 400,2 0 TERM:0
is $rc 0 "a signal when one rank has finished stops nothing" || diag "$(cat late.out)"
is "$(ends late 0)" "400 saves []" "and all steps are done"
# It finishes after the step that carries the news: rank 0 hears of both at once.
cat >between.py <<'BETWEEN'
import accel_slurm
import signal
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
job = accel_slurm.job("between")
if rank == 0:
    signal.raise_signal(signal.SIGTERM)
for _ in range(6 if rank == 0 else 1):
    assert not job.should_stop()
job.finish()
BETWEEN
passes "nor does one of the step after which it finishes" timeout "$HANG_S" \
    "$ACCEL_BUILD/accel" launch --config two.yaml between.py

# ---- calls that do not fit
cat >apart.py <<'APART'
import accel_slurm
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
def tried(name, call):
    try:
        call()
    except accel_slurm.Error as error:
        open(f"{name}.{rank}", "w").write(str(error))

job = accel_slurm.job("apart")
job.should_stop()
tried("save", lambda: job.save(1, lambda: None) if rank == 0 else
      (job.should_stop(), job.should_stop()))
job.finish()
job = accel_slurm.job("raise")
job.should_stop()
if rank == 1:
    raise ValueError("no more data")
tried("raise", lambda: [job.should_stop() for _ in range(100)])
APART
timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml apart.py >apart.out 2>&1
is $? 1 "an exception on one rank ends the run with its code" || diag "$(cat apart.out)"
like "$(cat apart.out)" '^.*ValueError: no more data' "and is printed"
for rank in 0 1; do
    like "$(cat save.$rank)" 'the ranks have called different functions of the job' \
        "rank $rank: a save on rank 0 only is an error"
done
like "$(cat raise.0)" 'the ranks cannot agree' "rank 0: so is a rank that has died"
cat >outlives.py <<'OUTLIVES'
import accel_slurm
import torch.distributed as dist

dist.init_process_group("gloo")
job = accel_slurm.job("outlives")
assert not job.should_stop()
dist.destroy_process_group()
assert not job.should_stop() and not job.should_stop()
job.finish()
OUTLIVES
passes "the job's group outlives destroy_process_group" timeout "$HANG_S" \
    "$ACCEL_BUILD/accel" launch --config two.yaml outlives.py
done_testing
