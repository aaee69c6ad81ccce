#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# A short run of a fuzz target: what a task reads from its environment.
# `make fuzz FUZZ_RUNS=N` runs them all longer.
exec "${ACCEL_SRC:-$(dirname "$0")/../..}/tests/fuzz/fuzz.sh" environ
