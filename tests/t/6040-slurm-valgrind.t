#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# srun, sbatch and salloc under valgrind with the plugin in use, accepting and refusing:
# no error and no lost byte with a frame of ours, but for the losses inside libraries that
# tests/data/valgrind-slurm.supp names. Findings without such a frame are Slurm's own.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
need_program valgrind
plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so
[ -f "$plugin" ] || skip_all "the plugin is not built"
if built_with_sanitizer; then
    skip_all "valgrind does not run sanitized code"
fi
cluster_up --nodes 1
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
printf 'distributed_type: MULTY_CPU\nnum_procesess: 2\n' >bad.yaml

# Findings (blank-separated blocks of the log) that name a frame of the plugin's files,
# by object or by source file.
ours() { # LOG...
    sources=$(cd "$ACCEL_SRC" && find srun_plugin runtime/config runtime/common -name "*.c")
    names=$(for f in $sources; do basename "$f"; done | sed 's/\./\\./' | tr '\n' '|')
    sed 's/^==[0-9]*== \{0,1\}//' "$@" | awk -v frames="accel_spank|\\((${names%|}):" '
        BEGIN { RS = "" } $0 ~ frames && /(at|by) 0x/ { print; print "" }'
}

clean_again=no # "yes" follows a client that starts itself again
clean() { # WANTED-EXIT NAME CLIENT ARG...
    clean_want=$1 clean_name=$2
    shift 2
    client=$(command -v "$1")
    shift
    # One open log, because a client that starts itself again keeps its process id.
    timeout "$HANG_S" valgrind --leak-check=full --show-leak-kinds=definite,indirect,possible \
        --keep-debuginfo=yes --trace-children=$clean_again --log-fd=9 \
        --suppressions="$ACCEL_SRC/tests/data/valgrind-slurm.supp" \
        "$client" "$@" 9>"$clean_name.vg" >"$clean_name.out" 2>&1 </dev/null
    is $? "$clean_want" "$clean_name: exit $clean_want" || diag "$(cat "$clean_name.out")"
    like "$(cat "$clean_name.vg")" 'ERROR SUMMARY' "$clean_name: valgrind reached the end"
    is "$(ours "$clean_name.vg")" "" "$clean_name: no finding in our code"
}

# First that a finding of ours would be seen at all.
cat >sample.vg <<'SAMPLE'
==1== Invalid read of size 1
==1==    at 0x483: strlen (in /usr/lib/vgpreload.so)
==1==    by 0x4E1: cmdline_read (cmdline.c:95)
==1==
==1== 8 bytes in 1 blocks are definitely lost
==1==    by 0x4E1: xmalloc (in /usr/lib/libslurm.so)
SAMPLE
is "$(ours sample.vg | grep -c 'Invalid read')" 1 "a finding of ours is recognised"
is "$(ours sample.vg | grep -c 'lost')" 0 "one of Slurm's is not"

clean 0 srun srun --accel-config=two.yaml hostname
clean 255 srun-refuses srun --accel-config=bad.yaml hostname
clean 1 srun-size srun -n1 --accel-config=two.yaml hostname
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\naccel:\n  preemption:\n    max_restarts: 0\n' >once.yaml
clean 85 srun-85 srun --accel-config=once.yaml sh -c 'exit 85'
clean 0 sbatch sbatch -n2 --hold -o /dev/null --accel-config=two.yaml --wrap true
printf '#!/bin/sh\n#SBATCH --accel-config="two.yaml" -o /dev/null # a file\ntrue\n' >job.sh
clean_again=yes
clean 0 sbatch-again sbatch --hold job.sh
is "$(grep -c 'Memcheck, a memory error detector' sbatch-again.vg)" 2 "sbatch starts itself once more"
clean 0 salloc-again salloc --accel-config=two.yaml --no-shell
clean_again=no
clean 255 sbatch-refuses sbatch --accel-config=bad.yaml --wrap true
clean 0 salloc salloc --accel-config=two.yaml -n2 true
done_testing
