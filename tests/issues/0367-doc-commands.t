#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: the first command of doc/tokens.md failed as printed, for want of a directory.
# The commands of accel that pages print in blocks of their own, and need no Slurm, run as they
# are printed beside what the pages say is there.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
tap_tmpdir
PATH=$ACCEL_BUILD:$PATH
unset SLURM_JOB_ID ACCEL_CONFIG_RESOLVED ACCEL_CONFIG
count=0
for page in "$ACCEL_SRC/README.md" "$ACCEL_SRC"/doc/*.md; do
    grep -q '^    accel [a-z]' "$page" || continue
    dir=$tap_tmp/$(basename "$page" .md)
    mkdir -p "$dir/gpt2" "$dir/corpus"
    cd "$dir" || bail_out "no directory"
    cp "$ACCEL_SRC/tests/data/tokenizer/gpt2.json" gpt2/tokenizer.json
    cp "$ACCEL_SRC/README.md" corpus/one.txt
    cp "$ACCEL_SRC/NEWS.md" corpus/two.txt
    printf 'distributed_type: FSDP\nuse_cpu: true\nnum_processes: 4\n' >fsdp.yaml
    echo 'print("trained")' >train.py
    # the lines between two commands of accel that make what they need
    sed -n 's/^    \(\(mkdir\|accel [a-z]\).*\)/\1/p' "$page" >commands
    while read -r command; do
        case $command in
        *.py*)
            if ! command -v python3 >/dev/null 2>&1 || ! command -v mpirun >/dev/null 2>&1; then
                skip 1 "$command: python3 or mpirun is not installed"
                continue
            fi
            ;;
        esac
        sh -c "$command" >said 2>&1 </dev/null
        ok $? "${page##*/}: $command" || diag "$(cat said)"
        count=$((count + 1))
    done <commands
done
[ $count -ge 3 ]
ok $? "commands were found"
done_testing
