#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Programs of the first release run with today's library: what its headers declared
# (tests/data/abi/1) is where it was, a program that was built with them trains, and structs that
# have grown since are understood in both directions.
. "$(dirname "$0")/tap.sh"

built_with_sanitizer && skip_all "the programs are built without sanitizers"
command -v "${CC:-cc}" >/dev/null || skip_all "no compiler"
tap_tmpdir
kept=$ACCEL_SRC/tests/data/abi/1 now=$ACCEL_BUILD/abi.json
cd "$tap_tmp" || bail_out "no directory"
unset SLURM_JOB_ID ACCEL_CONFIG ACCEL_CONFIG_RESOLVED CUDA_VISIBLE_DEVICES

# ---- the table ----
rows() { # TABLE: one a line
    sed -n 's/^\({.*}\),*$/\1/p' "$1" | sort
}
rows "$kept/abi.json" >rows.kept
rows "$now" >rows.now
grew() { # what may change: the sizes of structs that grow at their end
    grep -v '"kind": "\(sized\|given\)"'
}
ok "$(grep -c '"kind": "sized"' rows.kept | awk '{ print $1 < 20 }')" "the first release has a table"
is "$(grew <rows.kept | comm -23 - rows.now)" "" "every declaration of the first release is as it was"
# A member that lay in the padding of an older struct would be read from there.
is "$(awk -F'"' '
    /"kind": / { size[FILENAME, $4] = $0; sub(/.*"size": /, "", size[FILENAME, $4]) }
    FILENAME == "rows.kept" { old[$0] }
    FILENAME == "rows.now" && /"kind": / && (("rows.kept", $4) in size) &&
        size["rows.now", $4] + 0 < size["rows.kept", $4] + 0 { print $4 " is smaller" }
    FILENAME == "rows.now" && /"member"/ && !($0 in old) && (("rows.kept", $4) in size) {
        offset = $0
        sub(/.*"offset": /, "", offset)
        if (offset + 0 < size["rows.kept", $4] + 0)
            print $4 "." $8 " begins within the old struct"
    }' rows.kept rows.now)" "" "members come after all that was there"
for name in accel accelckpt acceljob; do
    nm -D --defined-only "$ACCEL_BUILD/.libs/lib$name.so"
done | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u >exported
is "$(sed -n 's/^{"function": "\([a-z0-9_]*\)".*/\1/p' rows.kept | sort | comm -23 - exported)" "" \
    "every function is exported"

# ---- a program ----
build() { # NAME HEADERS [FLAG...]
    built=$1 headers=$2
    shift 2
    passes "it is built as $built" "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror "$@" -I "$headers" \
        "$ACCEL_SRC/tests/data/abi/abi_program.c" -o "$built" -L"$ACCEL_BUILD/.libs" \
        -Wl,-rpath,"$ACCEL_BUILD/.libs" -laccel -laccelckpt
}
printf "distributed_type: MULTI_CPU\nuse_cpu: true\naccel: {checkpoint: {save: false}}\n" >run.yaml
build old "$kept"
want=$(OMP_NUM_THREADS=1 ./old run.yaml old.out 2>err)
is $? 0 "a program of the first release trains with today's library" || diag "$(cat err)"
like "$want" '^step 6 loss [0-9.]+ optims 1 lr 0.01 world 1 items [1-9]' "and gets what it asks for"

cp "$kept"/*.h .
for type in accel_job_t accel_step_info_t; do
    sed -i "s/^} $type;/    int64_t later;\n&/" ./*.h
done
build later . -DLATER=0
is "$(OMP_NUM_THREADS=1 ./later run.yaml later.out 2>&1)" "$want
later 0" "a later program runs with this library where it does not need what is newer"
build needs . -DLATER=1
got=$(./needs run.yaml needs.out 2>&1)
is $? 65 "where it does, it is refused"
like "$got" '^error\[A0914\]: accel_job_t: the program sets a member' "clearly"
build unset "$kept" -DNO_SIZE
got=$(./unset run.yaml unset.out 2>&1)
is $? 64 "a struct without its size is refused"
like "$got" '^  cure: write "accel_job_t x = ' "with the line to write"

# ---- as bindings read it ----
if command -v python3 >/dev/null; then
    is "$(python3 -c 'import json, sys; t = json.load(open(sys.argv[1])); print(t["api"], sum(
r["size"] for r in t["table"] if r.get("struct") == "accel_step_info_t" and r.get("member") == "lr"))' \
        "$now")" "$(sed -n 's/^#define ACCEL_API_VERSION //p' "$ACCEL_SRC/runtime/accel.h") 64" \
        "it is JSON"
else
    skip 1 "no python3"
fi
done_testing
