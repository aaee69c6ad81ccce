#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The plugin built with the address and undefined-behaviour sanitizers: every callback of
# slurmstepd by the stand-in host, with leaks; then srun, sbatch and salloc themselves, with
# the runtime preloaded, in the plugin's own tests. Slurm never frees all it has, so there
# leaks are left to 6040 (valgrind). slurmstepd itself keeps the ordinary plugin: it forks
# while it has threads, and a child forked while one of them is in the sanitizer's allocator
# waits for its lock for ever.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/sanitized.sh
. "$ACCEL_SRC/tests/t/sanitized.sh"

need_sanitizer_build srun_plugin/.libs/accel_spank.so
plugin=$asan/srun_plugin/.libs/accel_spank.so
runtime=$(sanitized_runtime "$plugin")
[ -n "$runtime" ] || skip_all "the address sanitizer is not among those of $asan"
tap_tmpdir
mkdir "$tap_tmp/reports"

ASAN_OPTIONS=$ASAN_OPTIONS:log_path=$tap_tmp/reports/stepd \
    timeout "$HANG_S" "$asan/tests/helpers/fake_spank" "$plugin" >"$tap_tmp/stepd.out" 2>&1
is $? 0 "slurmstepd's callbacks, right and damaged carriers" || diag "$(cat "$tap_tmp/stepd.out")"
no_report stepd
ok $? "slurmstepd's callbacks: no report, no leak"

if ! command -v slurmctld >/dev/null 2>&1; then
    skip 1 "Slurm's daemons are not installed"
    done_testing
fi
# A client that ends inside the plugin (--accel-dry-run) unloads it on the way out, so stacks are
# followed by frame pointers: the other way reads the code that they pass through.
ASAN_OPTIONS=exitcode=99:detect_leaks=0:fast_unwind_on_malloc=1

# First that a report of the plugin in srun would be seen: it reads the largest config into one piece.
head -c 1048576 /dev/zero | tr '\0' '#' >"$tap_tmp/large.yaml"
echo "required $plugin" >"$tap_tmp/plugstack.conf"
printf '%s\n' ClusterName=t SlurmctldHost=localhost "PlugStackConfig=$tap_tmp/plugstack.conf" \
    NodeName=localhost 'PartitionName=p Nodes=ALL' >"$tap_tmp/slurm.conf"
SLURM_CONF=$tap_tmp/slurm.conf LD_PRELOAD=$runtime \
    ASAN_OPTIONS=$ASAN_OPTIONS:max_allocation_size_mb=1:log_path=$tap_tmp/reports/sample \
    timeout "$HANG_S" srun --accel-config="$tap_tmp/large.yaml" true >/dev/null 2>&1
is $? 99 "a report in srun has an exit code of its own"
contains "$(cat "$tap_tmp"/reports/sample.*)" runtime/config/read/file.c "and lies where it is looked for"

# Only those three have the plugin in them. For all that a test starts, the runtime would take
# half of its time.
mkdir "$tap_tmp/bin"
for client in srun sbatch salloc; do
    printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$runtime" "$(command -v $client)" \
        >"$tap_tmp/bin/$client"
done
chmod 755 "$tap_tmp" "$tap_tmp/bin" "$tap_tmp"/bin/*
PATH=$tap_tmp/bin:$PATH CLIENTS_PRELOAD=$runtime
export CLIENTS_PRELOAD
sanitized_tests "6000-slurm-config-refused 6020-slurm-step-size" \
    "6010-slurm-step-env 6051-slurm-dry-run 6025-slurm-sbatch-size"
done_testing
