#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A short run of the manifest fuzz target: the corpus and some thousand mutations, each
# sealed with the right hash. `make fuzz-manifest FUZZ_RUNS=N` runs it longer.
data=${ACCEL_SRC:-$(dirname "$0")/../..}/tests/data/manifest
exec "${ACCEL_BUILD:-$(dirname "$0")/../..}/tests/fuzz/fuzz_manifest" -n "${FUZZ_RUNS:-20000}" \
    -s "${FUZZ_SEED:-1}" "$data"/*.txt
