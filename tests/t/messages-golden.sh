#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Writes what `accel explain` says of every code (pages.golden) and what the sources say at
# every place that makes an error (sites.golden), for review and for the test that compares.
#
#     messages-golden.sh SOURCES ACCEL DIR
set -eu
LC_ALL=C
export LC_ALL
sources=$1 accel=$2 dir=$3

mkdir -p "$dir"
"$accel" explain >"$dir/pages.new"
for code in $("$accel" explain | sed -n 's/^\(A[0-9]*\) .*/\1/p'); do
    echo
    "$accel" explain "$code"
done >>"$dir/pages.new"
mv "$dir/pages.new" "$dir/pages.golden"

here=$(cd "$(dirname "$0")" && pwd)
cd "$sources"
find runtime checkpoint srun_plugin scripts \( -name '*.c' -o -name '*.cu' \) -exec awk -f "$here/message-sites.awk" {} + |
    sort >"$dir/sites.new"
mv "$dir/sites.new" "$dir/sites.golden"
