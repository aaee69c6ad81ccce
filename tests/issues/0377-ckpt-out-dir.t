#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: `accel ckpt ls OUT` said that there were no checkpoints, although OUT/checkpoints had
# them; so did every other verb, and --accel-resume=OUT. `ls --json` wrote prose beside its JSON.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
accel=$ACCEL_BUILD/accel
mkdir out
cp -r "$ACCEL_SRC/tests/data/checkpoint-0.1/checkpoints" out/checkpoints
chmod -R u+w out
newest=$(find out/checkpoints -name "step_*" | sort | tail -n 1)

# same VERB [ARGUMENT...]: of OUT, OUT/ and OUT/checkpoints; @ stands for the directory
same() {
    for dir in out/checkpoints out out/; do
        rm -rf new out/checkpoints/*/index.h5
        args=
        for word in "$@"; do
            [ "$word" = @ ] && word=$dir
            args="$args $word"
        done
        # shellcheck disable=SC2086
        "$accel" $args >said 2>err
        echo "$? $(sed "s,out//*,out/,g" said | cksum) $(find new -type f 2>/dev/null | sort | tr '\n' ' ')" >>got
    done
    is "$(sort -u got | wc -l)/$(cut -c1-2 got | sort -u)" "1/0 " "accel $*: OUT is OUT/checkpoints" ||
        diag "$(cat got err)"
    rm got
}
same ckpt ls @
same ckpt ls --json @
same ckpt show @
same ckpt verify @
same ckpt diff @ "$newest"
same ckpt diff "$newest" @
same ckpt index @
same ckpt export @ new --all
same ckpt merge @ new
same ckpt split @ new --shards 2
same ckpt prune --dry-run --keep 1 @
same ckpt repair --dry-run @
same merge-weights @ new

# ---- a resume from another run's output directory ----
printf 'distributed_type: FSDP\nuse_cpu: true\n' >fsdp.yaml
train() { # OUT STEPS RESUME
    ACCEL_CONFIG=fsdp.yaml ACCEL_RESUME=$3 OMP_NUM_THREADS=1 timeout "$HANG_S" "$ACCEL_BUILD/examples/train" \
        --data "$ACCEL_SRC/LICENSE" --layers 1 --heads 2 --width 16 --seq 16 --batch 2 --sample 0 --steps "$2" --out "$1" >said 2>&1
}
train first 2 auto
is "$?" 0 "a run" || diag "$(cat said)"
for from in first first/ first/checkpoints first/checkpoints/step_00000002; do
    rm -rf second
    train second 3 "$from"
    is "$?/$(sed -n 's,//*,/,g; s/.*\(resumed from .*: step 2\).*/\1/p' said)" "0/resumed from $tap_tmp/first/checkpoints/step_00000002: step 2" \
        "resume from $from" || diag "$(tail -n 3 said)"
done
train first 3 first
is "$?/$(grep -c 'resumed from .*: step 2' said)" "0/1" "of its own output directory it is the newest"
rm -rf first/checkpoints/step_* second
train second 3 first
is "$?" 66 "where there is none, that is told"
like "$(cat said)" 'error\[A0341\]: [^ ]*/first/checkpoints: there is no checkpoint' "with the place"

# ---- what is no output directory is what it was ----
"$accel" ckpt ls "$newest" >said 2>err
is "$?/$(grep -c step_ said)" "0/1" "one checkpoint is listed by itself"
mkdir -p own/checkpoints
cp -r "$newest" own/
mkdir "own/${newest##*/}/checkpoints"
"$accel" ckpt ls own >said 2>err
is "$(grep -c step_ said)" 1 "a directory with checkpoints of its own is listed, not the one in it"
"$accel" ckpt ls "own/${newest##*/}" >said 2>err
is "$(grep -c step_ said)" 1 "and a checkpoint itself"
mkdir empty
"$accel" ckpt ls empty >said 2>err
is "$?/$(cat err)" "0/no checkpoints in empty" "an empty one has none, which is said"
"$accel" ckpt ls --json empty >said 2>err
is "$?/$(cat err)" "0/" "with --json nothing is said beside it"
like "$(tr -d ' \n' <said)" '^\{"checkpoints":\[\]\}$' "the JSON is an empty list"
mkdir -p bare/checkpoints
"$accel" ckpt ls bare >said 2>err
is "$(cat err)" "no checkpoints in bare/checkpoints" "and where it was looked is said"
done_testing
