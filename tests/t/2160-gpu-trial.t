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
unset ACCEL_CUDA_MODULE CUDA_VISIBLE_DEVICES
pack() { # [VARIABLE=VALUE]...: of make
    command=$(make -s -C "$ACCEL_BUILD" print-gpu-trial gpu_trial_file="$tap_tmp/packed.tar.gz" "$@")
    (cd "$ACCEL_BUILD" && eval "$command") >"$tap_tmp/log" 2>&1
}
pack CUDA_NVCCFLAGS='-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=compute_90'
is "$?, $(ls "$tap_tmp")" "1, log" "a module without kernels for an H100 is not packed"
like "$(cat "$tap_tmp/log")" 'no kernels for an H100: run ./configure --with-cuda-arch=90, or 80,90 ' \
    "and the cure is said"
like "$(make -n -s -C "$ACCEL_BUILD" gpu-trial gpu_trial_programs=no-such-program CUDA_NVCCFLAGS= 2>&1)" \
    '^[^:]*/pack.sh ' "before anything is built"
# What configure chose where there is no GPU, sm_80, is packed for this test alone.
set --
case $(make -s -C "$ACCEL_BUILD" print-gpu-trial) in
*code=sm_90a*) ;;
*) set -- CUDA_NVCCFLAGS="-gencode arch=compute_90a,code=sm_90a" ;;
esac
pack "$@"
ok $? "with them it is" || { diag "$(cat "$tap_tmp/log")"; done_testing; }
like "$(cat "$tap_tmp/log")" 'kernels for (sm_[0-9]+ )*sm_90a' "for devices that it names"
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

# ---- its parts: what they would start is only named ----
fresh "$tree/run" --list >"$tap_tmp/list"
parts=$(wc -l <"$tap_tmp/list" | tr -d ' ')
mv "$tree/reader.sh" "$tap_tmp/reader.sh"
cat >"$tree/reader.sh" <<'END'
need_gpu() { :; }
figure() { :; }
part_done() { exit 0; }
python3() { :; }
tap() { shift; echo "$*" | tr ' ' '\n'; }
figures() { shift; echo "$*" | tr ' ' '\n'; }
END
mkdir "$tap_tmp/scratch"
while read -r _ part; do
    (cd "$tap_tmp/scratch" && fresh TRIAL_ROOT="$tree" sh "$tree/parts.sh" "$part")
done <"$tap_tmp/list" >"$tap_tmp/started" 2>&1
mv "$tap_tmp/reader.sh" "$tree/reader.sh"
is "$( (cd "$tree/programs" && find tests -type f && cd "$tree" && find tests -name '*-gpu-*.t' &&
    sed -n '/^CASES/,/]/p' tests/bench/train_gpu.py | grep -o '[^"]*:[^"]*') | sort |
    while read -r what; do grep -q -e "/$what\$" -e "^$what\$" "$tap_tmp/started" || echo "$what"; done)" \
    "" "every test, benchmark and model to train is in a part"
like "$(awk '{ printf "%s ", $2 }' "$tap_tmp/list")" \
    '^machine core kernels attention graph .*bench-.*train-.*memcheck-.*long $' \
    "those that tell most first"
is "$(awk '{ print $2 }' "$tap_tmp/list" | sort | uniq -d)" "" "each has a name of its own"

# ---- without a GPU ----
if [ -e /dev/nvidiactl ]; then
    skip 4 "this machine has a GPU: make gpu-trial and its run try it"
else
    out=$(fresh "$tree/run" 2>&1)
    is $? 0 "without a GPU it ends with 0" || diag "$out"
    like "$out" 'nothing was tried: this machine has no NVIDIA GPU' "and says so"
    is "$(grep -c -A 1 'SKIP' "$tree/result.txt") $(grep -c 'skipped: this machine has no NVIDIA' \
        "$tree/result.txt")" "$parts $parts" "each part is skipped with the reason"
    like "$(cat "$tree/result.txt")" "^$parts parts: 0 passed, 0 failed, $parts skipped" \
        "the result counts them"
fi
like "$(cat "$tree/result.txt")" '^  libcublasLt\.so\.[0-9]+ (/.*|not found)$' \
    "the result names the libraries of CUDA that are used"
fresh "$tree/run" $((parts + 1)) >/dev/null 2>&1
is $? 64 "a part that does not exist is refused"
fresh "$tree/run" --limit 0 >/dev/null 2>&1
is $? 64 "so is a limit of no time"

# ---- parts of this test's own ----
cat >"$tree/parts.sh" <<'END'
. "$TRIAL_ROOT/reader.sh"
[ "$1" != --list ] || { echo hangs fails short stops works refused unknown-gpu | tr ' ' '\n'; exit; }
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
refused) tap product "$tests/refused.t" ;;
unknown-gpu) tap memcheck-products "$tests/t/2140-gpu-sanitizer.t" memcheck-products ;;
esac
part_done
END
printf '#!/bin/sh\necho ok 1 - one\necho "not ok 2 - two"\necho "# got 3"\necho 1..2\nexit 1\n' \
    >"$tree/tests/odd.t"
printf '#!/bin/sh\necho ok 1 - one\necho 1..2\n' >"$tree/tests/short.t"
# A product that cuBLASLt refuses again and again, and its log, in which calls are when asked for.
cat >"$tree/tests/refused.t" <<'END'
#!/bin/sh
for pid in 11 12; do
    log=$(echo "$CUBLASLT_LOG_FILE" | sed "s/%i/$pid/")
    for rows in 16 32 48 64 80 96 112 128 144; do
        said="[2026-01-02 03:04:$pid][cublasLt][$pid]"
        [ $((CUBLASLT_LOG_MASK & 16)) -eq 0 ] ||
            echo "$said[Api][cublasLtMatmulAlgoGetHeuristic] Adesc=[type=R_8F rows=$rows] bias=0XAB$pid"
        echo "$said[Error][cublasLtMatmulAlgoGetHeuristic] Failed to query heuristics."
        echo "$said[Error][cublasLtMatmul] Invalid."
    done >"$log"
done
echo not ok 1 - product
echo 1..1
END
cat >"$tap_tmp/compute-sanitizer" <<'END'
#!/bin/sh
echo "========= COMPUTE-SANITIZER"
echo "========= Error: Device not supported. Please refer to the documentation"
echo "========= ERROR SUMMARY: 1 error"
exit 99
END
# This machine's GPU, or none, is not asked.
printf 'on_stand_in() { false; }\nneed_gpu() { :; }\ngpu_configs() { :; }\n' >"$tree/tests/t/gpu.sh"
chmod +x "$tree/tests/odd.t" "$tree/tests/short.t" "$tree/tests/refused.t" "$tap_tmp/compute-sanitizer"
# The module is none, which a test of it says in its own words.
out=$(fresh PATH="$tap_tmp:/usr/bin:/bin" ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --limit 4 \
    --out "$tap_tmp/out" 2>&1)
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
like "$result" '^   ! product: not ok 1 - product$' "of a product that failed"
is "$(echo "$result" | grep -A 3 '^   ! cuBLASLt: ' | sed -n 1,4p)" \
    "   ! cuBLASLt: cublasLtMatmulAlgoGetHeuristic: Failed to query heuristics.
   !   cublasLtMatmulAlgoGetHeuristic: Adesc=[type=R_8F rows=16] bias=
   ! cuBLASLt: cublasLtMatmul: Invalid.
   ! cuBLASLt: cublasLtMatmulAlgoGetHeuristic: Failed to query heuristics." \
    "the library's reason and its call's shapes are in the result"
is "$(echo "$result" | grep -c 'cublasLt[A-Z]'), $(grep -c cuBLASLt "$tap_tmp/out/logs/06-refused.products")" \
    "10, 10" "each once, and no more than ten lines; the others are in logs"
like "$result" '^ 7 unknown-gpu +SKIP ' "a GPU that compute-sanitizer does not know"
like "$result" '0 passed, 0 failed, 3 skipped .*: compute-sanitizer says: Device not supported' "is no failure"
[ "$(wc -l <"$tap_tmp/out/result.txt")" -lt 70 ]
ok $? "the result is one short text"
fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --resume --limit 4 --out "$tap_tmp/out" >/dev/null 2>&1
is "$?, $(wc -l <"$tree/times" | tr -d ' ')" "0, 1" "--resume runs nothing twice"
fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --out "$tap_tmp/out" works >/dev/null 2>&1
is "$(wc -l <"$tree/times" | tr -d ' '), $(grep -c FAIL "$tap_tmp/out/result.txt")" "2, 5" \
    "a part can be run by itself, and the results of others stay"
out=$(fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --within 13 --out "$tap_tmp/out" 2>&1)
is "$?" 0 "--within ends in time: a part that was cut short has not failed"
like "$out" '^ 1 hangs +CUT ' "it is cut short"
like "$out" 'no time is left for part 2 and those behind it: ./run --resume' "the rest waits"
out=$(fresh ACCEL_CUDA_MODULE="$tree/none.so" "$tree/run" --resume --limit 1 --out "$tap_tmp/out" 2>&1)
like "$out" '^ 1 hangs +FAIL ' "--resume begins with what was cut short"
done_testing
