#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Our collectives and Open MPI's in turn, ROUNDS times, on the same machine; prints the
# best and the middle median of both and their ratio.
#   comm_vs_mpi.sh [RANKS [ROUNDS [MAX_BYTES [REPEATS]]]]      from the build directory
# With more ranks than CPUs Open MPI is told to yield, and a cap on the bytes keeps it short.
set -eu
ranks=${1:-2} rounds=${2:-3} max=${3:-67108864} repeats=${4:-11}
yield=0
[ "$ranks" -le "$(nproc)" ] || yield=1
here=$(cd "$(dirname "$0")" && pwd)
bench=${BENCH_COMM:-./tests/bench/bench_comm}
command -v mpicc >/dev/null || { echo "no mpicc: nothing to compare with" >&2; exit 77; }
[ -x "$bench" ] || { echo "$bench is missing: make $bench" >&2; exit 66; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mpicc -O2 -o "$tmp/bench_mpi" "$here/bench_mpi.c"

start() { # PROGRAM ARGS...
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_mpi_yield_when_idle=$yield mpirun --oversubscribe -n "$ranks" "$@"
}

round=0
while [ "$round" -lt "$rounds" ]; do
    start "$tmp/bench_mpi" "$repeats" "$max" >>"$tmp/mpi"
    start "$bench" --repeats "$repeats" --max "$max" --memory window >>"$tmp/window"
    start "$bench" --repeats "$repeats" --max "$max" --memory private >>"$tmp/private"
    round=$((round + 1))
done
grep memcpy "$tmp/window"
for kind in window private mpi; do
    grep -v '^#' "$tmp/$kind" | sort -k1,1 -k2,2n -k4,4n | awk -v kind="$kind" '
        function flush() { if (n) print key, kind, best, med[int((n + 1) / 2)] }
        { k = $1 " " $2
          if (k != key) { flush(); key = k; n = 0; best = $3 }
          med[++n] = $4; if ($3 + 0 < best + 0) best = $3 }
        END { flush() }'
done | sort -k1,1 -k2,2n | awk '
    BEGIN { printf "%-15s %9s | %9s %9s %9s | %9s %9s %9s | %s\n", "op", "bytes",
        "window", "private", "mpi", "window", "private", "mpi", "mpi/private"
        printf "%-25s | %29s | %29s | of medians\n", "", "best us", "median us" }
    { b[$3] = $4; m[$3] = $5; if (++n % 3 == 0)
        printf "%-15s %9d | %9.1f %9.1f %9.1f | %9.1f %9.1f %9.1f | %6.2f\n", $1, $2,
            b["window"], b["private"], b["mpi"], m["window"], m["private"], m["mpi"],
            m["mpi"] / m["private"] }'
