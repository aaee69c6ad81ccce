#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel test without a job: one process, ranks under mpirun, what it refuses and how, and
# nothing left behind.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"
cp "$ACCEL_SRC"/examples/*.yaml .
mkdir tmp bin
TMPDIR=$tap_tmp/tmp
OMP_NUM_THREADS=1
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export TMPDIR OMP_NUM_THREADS OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
unset SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID ACCEL_CONFIG ACCEL_CONFIG_RESOLVED

run() { # CMD...: sets code, out, err
    timeout "$HANG_S" "$@" >out 2>err
    code=$?
    out=$(cat out)
    err=$(cat err)
}
rows() { # "CHECK RESULT" per line
    awk 'NR > 1 { print $1, $2 }' out
}
all_good='start ok
map ok
all_gather ok
reduce_scatter ok
all_reduce ok
broadcast ok
barrier ok
directory ok
steps ok
checkpoint ok
signal ok'
nothing_left() {
    is "$(ls tmp)" "" "  nothing is left in TMPDIR"
}

run "$accel" test
is "$code" 0 "one process" || diag "$err"
is "$(rows)" "$all_good" "  every check is good"
unlike "$err" '^error' "  and nothing else is wrong"
nothing_left

# What a killed test left goes a day later; nothing else does.
mkdir -p tmp/accel-selftest.abcdef/step_1 tmp/accel-selftest.ABCDEF \
    tmp/accel-selftest.results
touch tmp/accel-selftest.abcdef/step_1/file
ln -s "$tap_tmp/bin" tmp/accel-selftest.linked
touch -h -d '2 days ago' tmp/accel-selftest.abcdef tmp/accel-selftest.results \
    tmp/accel-selftest.linked
run "$accel" test
is "$code" 0 "after tests that were killed"
is "$(cd tmp && echo *)" \
    "accel-selftest.ABCDEF accel-selftest.linked accel-selftest.results" \
    "  removes the directory that one left two days ago, not a young one"
rm -rf tmp/accel-selftest.*

# The user's own checkpoints are not for tests.
printf 'distributed_type: FSDP\naccel:\n  checkpoint:\n    dir: %s/mine\n    every_steps: 1\n' \
    "$tap_tmp" >mine.yaml
run "$accel" test --config mine.yaml
is "$code" 0 "with a config that names checkpoints" || diag "$err"
[ ! -e mine ]
ok $? "  leaves those alone"
printf '  preemption:\n    enabled: false\n' >>mine.yaml
run "$accel" test --config mine.yaml
is "$code" 0 "without preemption"
like "$(rows)" '^signal skipped$' "  there is no signal to test"
run sh -c "trap '' USR1; exec '$accel' test"
is "$code" 69 "a signal that is ignored"
like "$(rows)" '^signal fail$' "  is a failed check"
like "$err" '^error(\[A0068\])?: rank 0 on ' "  with its rank"
nothing_left

run "$accel" test --dir nowhere
is "$code" 73 "a directory that is not there"
like "$(rows)" '^directory fail$' "  is a failed check"
contains "$err" "--dir DIR" "  with its cure"
unlike "$(rows)" '^(steps|checkpoint)' "  and ends what needs it"
if command -v python3 >/dev/null 2>&1; then
    run "$accel" test --json
    is "$(python3 -c 'import json
d = json.load(open("out"))["checks"]
print(len(d), {c["result"] for c in d}, all(c["ms"] >= 0 for c in d))' 2>&1)" \
        "11 {'ok'} True" "--json"
else
    skip 1 "no python3"
fi
run "$accel" test somewhere
is "$code" 64 "an argument"
run "$accel" test --config none.yaml
is "$code" 66 "no such config"

# With Slurm at hand, but no allocation, it says how to get ranks.
printf '#!/bin/sh\necho "srun $*"\n' >bin/srun
chmod +x bin/srun
run env PATH="$tap_tmp/bin:$PATH" "$accel" test --config fsdp.yaml
is "$code" 64 "several processes and no allocation"
contains "$err" "srun --accel-config=fsdp.yaml accel test" "  the line to type"
run env PATH="$tap_tmp/bin:$PATH" SLURM_JOB_ID=7 "$accel" test --config fsdp.yaml --json
is "$code/$out" "0/srun --accel-config=fsdp.yaml $accel test --json" \
    "inside an allocation it starts srun"
contains "$err" "starting: srun --accel-config=fsdp.yaml" "  and says so"
run env PATH="$tap_tmp/bin:$PATH" SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_STEP_ID=4294967290 \
    "$accel" test
is "$out" "srun --mpi=pmix $accel test" "so does the shell that salloc opens"
run env PATH="$tap_tmp/bin:$PATH" "$accel" test
is "$code" 0 "one process with Slurm at hand"
contains "$err" "note: this tests one process" "  says that it is only one"

if command -v mpirun >/dev/null 2>&1 && grep -q '^#define HAVE_PMIX\|-DHAVE_PMIX' \
    "$ACCEL_BUILD/Makefile"; then
    for config in fsdp.yaml ddp.yaml; do
        run "$accel" launch --config $config "$accel" test
        is "$code" 0 "2 ranks of $config" || diag "$err"
        is "$(rows)" "$all_good" "  every check is good"
        like "$out" '^map .* 2 ranks on 1 node \(.*: 0-1\), pmix, shm' "  the map"
    done
    nothing_left
    run mpirun --oversubscribe -n 3 "$accel" test --config fsdp.yaml
    is "$code" 65 "3 ranks with a config for 2"
    contains "$err" "the config says 2, but 3 processes were started" "  are refused"
else
    skip 9 "no mpirun, or built without PMIx"
fi
if [ -x "$(sed -n 's/^prefix = //p' "$ACCEL_BUILD/Makefile")/libexec/accel/accel-selftest" ]; then
    skip 4 "an installation beside this tree has the programs"
else
    cp "$accel" bin/accel
    run bin/accel test
    is "$code" 69 "without accel-selftest"
    like "$err" 'A0060|not there' "  it says what is missing"
    run bin/accel ckpt verify tmp
    is "$code" 69 "without accel-verify"
    contains "$err" "accel-verify, which \`accel ckpt verify\` starts, is missing" "  it says so"
fi
done_testing
