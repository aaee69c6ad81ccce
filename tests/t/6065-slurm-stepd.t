#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The plugin's side in slurmd and slurmstepd: every callback in every context, with right
# and damaged input, driven by tests/helpers/fake_spank; plain, and under valgrind without a
# finding or a lost byte of ours. Then 50 real steps (ACCEL_LONG_TESTS=1: 1000): the daemons keep
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
