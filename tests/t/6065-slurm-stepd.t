#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The plugin's side in slurmd and slurmstepd: every callback in every context, with right
# and damaged input, driven by tests/helpers/fake_spank; plain, and under valgrind without a
# finding or a lost byte of ours; what it notes of tasks that end, and that a file system that
# hangs does not hold it. Then 50 real steps (ACCEL_LONG_TESTS=1: 1000): the daemons keep
# neither memory nor descriptors.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
fake=$ACCEL_BUILD/tests/helpers/fake_spank
plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so
[ -x "$fake" ] || skip_all "tests/helpers/fake_spank is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
passes "every callback in every context" timeout "$HANG_S" "$fake" "$plugin"
if command -v valgrind >/dev/null 2>&1; then
    timeout "$HANG_S" valgrind --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect --error-exitcode=99 --keep-debuginfo=yes \
        --log-file=vg "$fake" "$plugin" 2>err
    is $? 0 "under valgrind: no finding" || diag "$(cat err vg)"
else
    skip 1 "valgrind is not installed"
fi


# ---- tasks that end
mine=$(id -u)
note() { # UID STATUS...: into notes
    rm -rf notes
    mkdir notes
    [ "$1" = "$mine" ] || chown "$1" notes
    timeout "$HANG_S" "$fake" "$plugin" "$tap_tmp/notes" "$@"
    is "$?" 0 "tasks end with ${2}${3+ ...}"
}
noted() { # "TASK=STATUS ..."
    (cd notes && for file in *; do
        [ ! -e "$file" ] || echo "${file#end.0.}=$(cut -d ' ' -f 1 "$file")"
    done) | sort -n | tr '\n' ' '
}
note "$mine" 0 768 0 15 9 11 256
is "$(noted)" "1=768 5=11 6=256 " "what is noted: the first, then failures only"
like "$(cat notes/end.0.1)" '^768 [0-9]{19} $' "status, time, and the node's name, which is not known here"
is "$(stat -c %a notes/end.0.1)" 600 "for nobody else"
note "$mine" 15 15 9 9 0
is "$(noted)" "0=15 " "a step that is cancelled: one note"
note "$mine" 21760 19200
is "$(noted)" "0=21760 " "a step that stops: one note"
# shellcheck disable=SC2046 # words
note "$mine" $(yes 256 | head -n 128)
is "$(noted | wc -w)" 16 "128 tasks that fail: 16 notes"
if [ "$mine" = 0 ]; then
    chmod 711 "$tap_tmp"
    note 65534 768
    is "$(stat -c '%u %g' notes/end.0.0)" "65534 65534" "a user's note is written by the user"
    rm -rf notes
    mkdir -m 755 notes
    timeout "$HANG_S" "$fake" "$plugin" "$tap_tmp/notes" 65534 768
    is "$?/$(ls notes)" "0/" "nothing is written where only root could"
else
    skip 3 "needs root"
fi
mkdir hidden
ln -s hidden link
timeout "$HANG_S" "$fake" "$plugin" "$tap_tmp/link" "$mine" 768
is "$?/$(ls hidden)" "0/" "no link is followed"
timeout "$HANG_S" "$fake" "$plugin" "$tap_tmp/none" "$mine" 768
is "$?" 0 "no directory: no harm"
# The child is held in its first call that names the folder, for longer than this test may take.
if strace -f true >/dev/null 2>&1; then
    rm -rf notes
    mkdir notes
    # shellcheck disable=SC2016 # for the inner shell
    strace -f -qq -o trace -P "$tap_tmp/notes" -e trace=openat -e inject=openat:delay_enter=3600s \
        sh -c '"$@"; echo $? >ended' sh "$fake" "$plugin" "$tap_tmp/notes" "$mine" 768 256 2>strace.err &
    tracer=$!
    kill_at_exit $tracer KILL
    wait_until test -s ended
    is "$(cat ended)" 0 "a file system that hangs does not hold slurmstepd" || diag "$(cat strace.err)"
    kill -KILL $tracer
    wait $tracer 2>/dev/null
    is "$(ls notes)" "" "which notes nothing then"
else
    skip 2 "this system allows no tracing"
fi

cluster_up --nodes 1
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
steps=50
[ -z "${ACCEL_LONG_TESTS:-}" ] || steps=1000

daemon() { # NAME: its process id
    sed -n 1p "$cluster_dir"/run/"$1"*.pid 2>/dev/null
}

# "DESCRIPTORS RSS-kB" of a process
held() { # PID
    echo "$(find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l) $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status")"
}

run_steps() { # COUNT
    cat >steps.sh <<STEPS
n=0
while [ \$n -lt $1 ]; do
    timeout "$HANG_S" srun --accel-config=two.yaml true || exit 1
    n=\$((n + 1))
done
STEPS
    timeout 900 salloc -Q -n2 sh steps.sh >steps.out 2>&1
}

nothing_runs() {
    [ -z "$(squeue -h)$(squeue -h -s)" ]
}

flat() { # NAME PID BEFORE
    flat_now=$(held "$2")
    diag "$1: descriptors and kB before $3, after $steps steps $flat_now"
    [ "${flat_now% *}" -le $((${3% *} + 2)) ]
    ok $? "$1: no descriptor is kept"
    # Slurm's own bookkeeping of steps moves by some pages; a leak of ours would be at
    # least a kilobyte a step.
    [ "${flat_now#* }" -le $((${3#* } + 1024 + steps)) ]
    ok $? "$1: no memory is kept"
}

slurmd=$(daemon slurmd)
slurmctld=$(daemon slurmctld)
if [ -n "$slurmd" ] && [ -n "$slurmctld" ]; then
    run_steps 100 # the daemons' own caches fill: slurmctld grew by a megabyte after 20
    wait_until nothing_runs
    slurmd_was=$(held "$slurmd")
    slurmctld_was=$(held "$slurmctld")
    run_steps $steps
    is $? 0 "$steps steps" || diag "$(tail -n 5 steps.out)"
    wait_until nothing_runs
    flat slurmd "$slurmd" "$slurmd_was"
    flat slurmctld "$slurmctld" "$slurmctld_was"
else
    skip 5 "the cluster keeps no pid files"
fi
done_testing
