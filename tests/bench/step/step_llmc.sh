#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles step_llmc.c with the train_gpt2.c of a checkout of llm.c, $ACCEL_LLMC, as its own
# Makefile compiles that (compiler, flags, OpenMP), and becomes it.
#     step_llmc.sh DTYPE BATCH TIME THREADS
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/accel-bench.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
make -s -C "$ACCEL_LLMC" -f Makefile -f - from="$here/step_llmc.c" to="$tmp/step_llmc" \
    step_llmc >/dev/null <<'END' || exit 1
step_llmc: ; $(CC) $(CFLAGS) -DTESTING -I. $(INCLUDES) $(LDFLAGS) $(from) $(LDLIBS) -o $(to)
END
[ "$4" -gt 0 ] && export OMP_NUM_THREADS="$4"
exec 9<"$tmp/step_llmc"
rm -rf "$tmp"
exec /proc/self/fd/9 "$2" "$3"
