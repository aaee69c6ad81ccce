#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A short run of a fuzz target: bytes as a token file.
# `make fuzz FUZZ_RUNS=N` runs them all longer.
exec "${ACCEL_SRC:-$(dirname "$0")/../..}/tests/fuzz/fuzz.sh" tokens
