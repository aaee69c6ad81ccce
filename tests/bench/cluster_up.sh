#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# How long accel-cluster takes to bring a cluster up and down: median, lowest and highest
# of ROUNDS (5) per mode, in milliseconds, as a table.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cluster=$here/../../scripts/accel-cluster
rounds=${ROUNDS:-5}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

summary() { # numbers on stdin
    sort -n | awk '{ v[NR] = $1 }
        END { printf "%5d %5d %5d", v[int((NR + 1) / 2)], v[1], v[NR] }'
}

printf '%-6s %5s  %-17s  %-17s\n' mode nodes 'up: med min max' 'down: med min max'
for shape in 'plain 1' 'plain 2' 'mnt 1' 'mnt 2' 'mnt 8' 'net 2' 'net 8'; do
    # shellcheck disable=SC2086 # two words
    set -- $shape
    if [ "$1" = net ] && [ "$(id -u)" != 0 ]; then continue; fi
    dir=$(mktemp -d /tmp/accel-b.XXXXXX) || exit 1
    trap '"$cluster" down --dir "$dir"' EXIT
    trap 'exit 130' INT TERM HUP
    ups='' downs=''
    for _ in $(seq "$rounds"); do
        begin=$(now_ms)
        "$cluster" up --dir "$dir" --mode "$1" --nodes "$2" --plugin none >/dev/null || exit 1
        ups="$ups $(($(now_ms) - begin))"
        begin=$(now_ms)
        "$cluster" down --dir "$dir" || exit 1
        downs="$downs $(($(now_ms) - begin))"
    done
    trap - EXIT
    # shellcheck disable=SC2086
    printf '%-6s %5s  %s  %s\n' "$1" "$2" "$(printf '%s\n' $ups | summary)" \
        "$(printf '%s\n' $downs | summary)"
done
