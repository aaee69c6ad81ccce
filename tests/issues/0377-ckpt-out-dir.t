#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: `accel ckpt ls OUT` said that there were no checkpoints, although OUT/checkpoints had
# them; so did every other verb. `ls --json` wrote prose beside its JSON.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/../t/tap.sh"

tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
accel=$ACCEL_BUILD/accel
mkdir out
cp -r "$ACCEL_SRC/tests/data/checkpoint-0.1/checkpoints" out/checkpoints
chmod -R u+w out
newest=$(ls -d out/checkpoints/step_* | tail -n 1)

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
