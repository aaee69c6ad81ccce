#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A short run of the config fuzz target: the whole corpus and some thousand mutations.
# `make fuzz-config FUZZ_RUNS=N` runs it longer.
data=${ACCEL_SRC:-$(dirname "$0")/../..}/tests/data/config
exec "${ACCEL_BUILD:-$(dirname "$0")/../..}/tests/fuzz/fuzz_config" -n "${FUZZ_RUNS:-5000}" \
    -s "${FUZZ_SEED:-1}" "$data"/good/*.yaml "$data"/bad/*.yaml
