#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make gpu-trial: what it packs is small, starts in a folder of another name without anything of
# this build, and says why it skips what needs a GPU. A part that hangs is stopped with all that
# it started, one that fails stops no other, and a run goes on where it was.
. "$(dirname "$0")/tap.sh"

for program in runtime/backend/cuda/accel_cuda.so tests/bench/bench_cuda examples/train \
    tests/unit/test_cuda_models tests/bench/gpu/.libs/kernel_times.so; do
    [ -f "$ACCEL_BUILD/$program" ] || skip_all "$program is not built"
done
built_with_sanitizer && skip_all "a build with sanitizers is not for GPUs"
tap_tmpdir
unset MAKEFLAGS MFLAGS MAKELEVEL ACCEL_CUDA_MODULE CUDA_VISIBLE_DEVICES
command=$(make -s -C "$ACCEL_BUILD" print-gpu-trial gpu_trial_file="$tap_tmp/packed.tar.gz")
(cd "$ACCEL_BUILD" && eval "$command") >"$tap_tmp/log" 2>&1
ok $? "it is packed" || { diag "$(cat "$tap_tmp/log")"; done_testing; }
like "$(cat "$tap_tmp/log")" 'kernels for sm_[0-9]+.*' "for devices that it names"
[ "$(wc -c <"$tap_tmp/packed.tar.gz")" -le $((60 << 20)) ]
ok $? "at most 60 MiB: $(tail -n 1 "$tap_tmp/log" | sed 's/.*gz: //')"

mkdir "$tap_tmp/else where"
cd "$tap_tmp/else where" || bail_out "no directory"
tar xzf ../packed.tar.gz && mv accel-gpu-trial "a tree" && rm ../packed.tar.gz
tree=$PWD/"a tree"
fresh() { # COMMAND...: with nothing of this shell's environment
    env -i PATH=/usr/bin:/bin TMPDIR="$tap_tmp" "$@"
}

# ---- what is in it ----
is "$(find "$tree" -name 'libcuda*' -o -name 'libcublas*' -o -name 'libcudnn*' -o -name 'libnv*' \
    -o -name 'libnccl*' -o -name 'libc.so*')" "" "no library of CUDA, nor the C library"
is "$(grep -rlI -F "$ACCEL_BUILD/" "$tree" | grep -v /doc/)" "" "no script names the build's folder"
is "$(find "$tree/programs" -type f | while IFS= read -r program; do
    fresh LD_LIBRARY_PATH="$tree/lib" ldd "$program" | grep -E "not found|$ACCEL_BUILD"
done | grep -v -E 'libcu(dart|blasLt)\.so')" "" "programs find their libraries without the build"
is "$(grep -a -o '_Z[0-9][0-9]*[a-zA-Z0-9_]*' "$tree/runtime/backend/cuda/accel_cuda.so" |
    grep -E '_kernel|[0-9]attention_' | grep -E "$(sed -n 's/^theirs=//p' \
        "$ACCEL_SRC/tests/t/2140-gpu-sanitizer.t" | sed 's/kns=//g' | tr ',' '|')" | head -n 3)" "" \
    "no kernel of ours has a name that compute-sanitizer is told to leave out"
is "$(fresh "$tree/accel" --version)" "$("$ACCEL_BUILD/accel" --version)" "a program starts there"

# ---- without a GPU ----
if [ -e /dev/nvidiactl ]; then
    skip 4 "this machine has a GPU: make gpu-trial and its run try it"
else
    out=$(fresh "$tree/run" 2>&1)
    is $? 0 "without a GPU it ends with 0" || diag "$out"
    like "$out" 'nothing was tried: this machine has no NVIDIA GPU' "and says so"
    is "$(grep -c -A 1 'SKIP' "$tree/result.txt") $(grep -c 'skipped: this machine has no NVIDIA' \
        "$tree/result.txt")" "11 11" "each part is skipped with the reason"
    like "$(cat "$tree/result.txt")" '^11 parts: 0 passed, 0 failed, 11 skipped' "the result counts them"
fi
like "$(cat "$tree/result.txt")" '^  libcublasLt\.so\.[0-9]+ (/.*|not found)$' \
    "the result names the libraries of CUDA that are used"
fresh "$tree/run" 12 >/dev/null 2>&1
is $? 64 "a part that does not exist is refused"
fresh "$tree/run" --limit 0 >/dev/null 2>&1
is $? 64 "so is a limit of no time"

# ---- parts of this test's own ----
cat >"$tree/parts.sh" <<'END'
. "$TRIAL_ROOT/reader.sh"
[ "$1" != --list ] || { echo hangs fails short stops works | tr ' ' '\n'; exit; }
tests=$TRIAL_ROOT/tests
case $1 in
hangs)
    figure "begun"
    timeout 1000 sh -c 'trap "" TERM; echo $$ >"$0"; while [ -e "$0" ]; do sleep 0.2; done' "$TRIAL_ROOT/pid"
    ;;
fails) tap odd "$tests/odd.t" ;;
short) tap short "$tests/short.t" ;;
stops) figures stopped sh -c 'echo 17 tokens/s; exit 3' ;;
works) echo once >>"$TRIAL_ROOT/times"; tap "without a module" "$tests/unit/test_cuda_scratch" ;;
esac
part_done
END
printf '#!/bin/sh\necho ok 1 - one\necho "not ok 2 - two"\necho "# got 3"\necho 1..2\nexit 1\n' \
    >"$tree/tests/odd.t"
printf '#!/bin/sh\necho ok 1 - one\necho 1..2\n' >"$tree/tests/short.t"
chmod +x "$tree/tests/odd.t" "$tree/tests/short.t"
# The module is none, which a test of it says in its own words.
out=$(fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --limit 4 --out "$tap_tmp/out" 2>&1)
is $? 1 "it ends with 1 where a part failed"
result=$(cat "$tap_tmp/out/result.txt")
like "$result" '^ 1 hangs +FAIL +[0-9]+ s$' "a part that hangs is stopped at its limit"
like "$result" '^   begun$' "what it found is kept"
like "$result" '^   ! stopped after 4 s$' "and the time is said"
# What nobody has waited for yet is over, too.
is "$(sed -n 's/^State:[^A-Z]*\([^Z]\) .*/\1/p' "/proc/$(cat "$tree/pid")/status" 2>/dev/null)" "" \
    "nothing of it is left, though it would not end"
like "$result" '^ 2 fails +FAIL ' "a part that fails does not stop the others"
like "$result" '^   ! odd: not ok 2 - two$' "its first failure is in the result"
like "$result" '^   !   got 3$' "with what the test said of it"
like "$result" '^   odd: 1 passed, 1 failed, 0 skipped$' "and the counts"
like "$result" '^   ! short: ended with status 0 behind 1 of 2 checks$' \
    "a test that ends too soon has failed"
like "$result" '^ 4 stops +FAIL ' "so has a benchmark that ends with an error"
like "$result" '^   17 tokens/s$' "whose figures are kept"
like "$result" '^ 5 works +SKIP ' "a test that skips itself"
like "$result" 'test_cuda_scratch|without a module: skipped: .*none.so.* does not exist' "says why"
[ "$(wc -l <"$tap_tmp/out/result.txt")" -lt 60 ]
ok $? "the result is one short text"
fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --resume --limit 4 --out "$tap_tmp/out" >/dev/null 2>&1
is "$?, $(wc -l <"$tree/times" | tr -d ' ')" "0, 1" "--resume runs nothing twice"
fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --out "$tap_tmp/out" works >/dev/null 2>&1
is "$(wc -l <"$tree/times" | tr -d ' '), $(grep -c FAIL "$tap_tmp/out/result.txt")" "2, 4" \
    "a part can be run by itself, and the results of others stay"
out=$(fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --within 13 --out "$tap_tmp/out" 2>&1)
is "$?" 0 "--within ends in time: a part that was cut short has not failed"
like "$out" '^ 1 hangs +CUT ' "it is cut short"
like "$out" 'no time is left for part 2 and those behind it: ./run --resume' "the rest waits"
out=$(fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --resume --limit 1 --out "$tap_tmp/out" 2>&1)
like "$out" '^ 1 hangs +FAIL ' "--resume begins with what was cut short"
done_testing
