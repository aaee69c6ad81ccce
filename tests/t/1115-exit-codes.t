#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Which exit code a command ends with where several would do: one row each. Several files, several
# ranks, a finding and an output that cannot be written. That each code is shown somewhere is
# the matter of 1105-messages-shown.t.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
accel=$ACCEL_BUILD/accel
old=$ACCEL_SRC/tests/data/checkpoint-0.1/checkpoints
unset ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES SLURM_JOB_ID SLURM_PROCID
OMP_NUM_THREADS=1
export OMP_NUM_THREADS accel

printf 'distributed_type: "NO"\n' >good.yaml
printf 'distributed_typ: "NO"\n' >bad.yaml
printf 'distributed_type: "NO"\nmixed_precision: bf16\n' >locked.yaml
printf 'mixed_precision: bf16\n' >two.yaml
printf 'mixed_precision: "no"\naccel:\n  lock: [mixed_precision]\n' >site.yaml
mkdir bin whole both none
# shellcheck disable=SC2016 # for the inner shell
printf '#!/bin/sh\n[ "$1" != --version ] || echo "slurm 1.2.3"\n' >bin/srun
chmod +x bin/srun
cp -r "$old/step_00000004" whole
cp -r "$old/step_00000004" both
cp -r "$old/step_00000004" both/step_00000005 # which it is not
: >both/step_00000004/rank_00000-of-00002.h5
# A rank that ends with the code of its place: "3 0 85". At ":" it waits to be told to end, and
# ends with 9 then.
cat >ranks.sh <<'END'
for i in $(seq "$LOCAL_RANK"); do shift; done
case $1 in
:) trap 'exit 9' TERM; : >"waits.$LOCAL_RANK"; while :; do sleep 0.02; done ;;
KILL) while [ "$WAITS" ] && ! [ -e "waits.$WAITS" ]; do sleep 0.02; done; kill -KILL $$ ;;
*) while [ "$WAITS" ] && ! [ -e "waits.$WAITS" ]; do sleep 0.02; done; exit "$1" ;;
esac
END
# shellcheck disable=SC2317 # called by a row
ranks() { # CODE...: one for each rank
    rm -f waits.*
    "$accel" launch --cpu -n $# --no_python sh ranks.sh "$@"
}

while IFS='|' read -r want what command; do
    case $command in
    */dev/full*) [ -c /dev/full ] || { skip 1 "no /dev/full"; continue; } ;;
    esac
    (eval "$command") >out 2>err </dev/null
    is $? "$want" "$want: $what" || diag "$(cat out err)"
done <<'END'
0|good files|$accel check good.yaml good.yaml
65|a good file and a bad one|$accel check good.yaml bad.yaml
65|a bad file and a good one|$accel check bad.yaml good.yaml
65|a bad file before one that is missing|$accel check bad.yaml none.yaml
66|one that is missing before a bad one|$accel check none.yaml bad.yaml
78|a locked key before a bad file|$accel check --site site.yaml locked.yaml bad.yaml
65|a bad file before a locked key|$accel check --site site.yaml bad.yaml locked.yaml
65|a file with an error and a locked key|$accel check --site site.yaml two.yaml
74|a good file, and no output|$accel check good.yaml >/dev/full
74|no output before a bad file|$accel check good.yaml bad.yaml >/dev/full
65|a bad file before no output|$accel check bad.yaml good.yaml >/dev/full
64|a wrong option before a bad file|$accel check bad.yaml --nothing
0|a checkpoint as it should be|$accel ckpt verify whole
74|two damaged ones|$accel ckpt verify both
66|no checkpoint at all|$accel ckpt verify none
74|a good one, and no output|$accel ckpt verify whole >/dev/full
0|the same checkpoint twice|$accel ckpt diff whole/step_00000004 whole/step_00000004
0|no difference, which needs no output|$accel ckpt diff whole/step_00000004 whole/step_00000004 >/dev/full
69|a broken Slurm|PATH=$tap_tmp/bin:$PATH $accel doctor
74|the same, and no output|PATH=$tap_tmp/bin:$PATH $accel doctor >/dev/full
0|all ranks end 0|ranks 0 0 0
85|one rank alone|ranks 0 85 0
3|the first of two that fail|WAITS=1 ranks 3 : 0
3|the rank that fails, not those that are ended for it|WAITS=0 ranks : 3
137|a rank that is killed|WAITS=0 ranks : KILL
85|all ranks end alike|ranks 85 85
65|a bad file before a program that is missing|$accel launch --config bad.yaml --no_python ./missing
66|a program that is missing|$accel launch --config good.yaml --no_python ./missing
END
done_testing
