#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The arrows of the design, in the order of doc/architecture.md: a stage includes only headers of
# its own folder and of stages above it, and calls nothing else; config/ and plan/ need libc,
# libyaml and xxHash only; checkpoint/ knows common/ and accel.h only; examples see the public
# header only.
. "$(dirname "$0")/tap.sh"

cd "$ACCEL_SRC" || bail_out "no $ACCEL_SRC"
# in their order
stages=$(sed -n 's#^| runtime/\([a-z0-9_]*\)/ |.*#\1#p' doc/architecture.md)
is "$(printf '%s\n' "$stages" | sort)" "$(find runtime -mindepth 1 -maxdepth 1 -type d |
    sed 's#.*/##' | sort)" "the folders of runtime/ are the rows of architecture.md's table"

# FOLDER PATTERN ALLOWED-ERE: prints `file: include` of what is not allowed.
wrong_includes() {
    find "$1" \( -name '*.[ch]' -o -name '*.cu' \) -exec grep -H -E "$2" {} + |
        sed -E 's/^([^:]*):[[:space:]]*#[[:space:]]*include[[:space:]]*/\1: /' |
        grep -v -E ": $3" || :
}
quoted='^[[:space:]]*#[[:space:]]*include[[:space:]]*"'
angled='^[[:space:]]*#[[:space:]]*include[[:space:]]*<'

above=
for stage in $stages; do
    above="$above${above:+|}$stage"
    plain="accel(_job|_loaders|_ops|_models|_objects|_ranks|_state|_text|_track|_units)?\\.h"
    case $stage in
    preemption | shard | handle | training | weights | state | run) # boxes; save and load
        plain="$plain|accel_(ckpt|safetensors)\\.h"
        ;;
    esac
    [ "$stage" != weights ] || plain="$plain|st_internal\\.h" # libaccelckpt's own
    for header in "runtime/$stage"/*.h; do
        [ ! -f "$header" ] || plain="$plain|${header##*/}"
    done
    is "$(wrong_includes "runtime/$stage" "$quoted" "\"(($above)/([a-z0-9_]+/)*[^/]+\\.(h|def)|$plain)\"")" "" \
        "$stage includes its own headers and those of stages above"
done
# The same of calls, by what the objects of a stage define and need: a header below may declare
# what a stage above defines.
tap_tmpdir
for stage in $stages; do
    find "$ACCEL_BUILD/runtime/$stage" -path '*/.libs/*.o' -exec nm -g {} + |
        awk -v stage="$stage" 'NF == 2 && $1 == "U" || NF == 3 { print stage, $(NF - 1), $NF }'
done >"$tap_tmp/names"
isnt "$(grep -c . "$tap_tmp/names")" 0 "the objects of the stages are there"
is "$(awk -v stages="$stages" '
    BEGIN { for (n = split(stages, name); n; n--) place[name[n]] = n }
    $2 != "U" { defined[$3] = $1 }
    $2 == "U" { needs[$1, $3] = $1 }
    END {
        for (pair in needs) {
            split(pair, part, SUBSEP)
            to = defined[part[2]]
            if (to != "" && place[to] > place[part[1]])
                print part[1] " calls " part[2] " of " to
        }
    }' "$tap_tmp/names" | sort)" "" "no stage calls what a stage above it defines"

for stage in config plan; do
    is "$(wrong_includes "runtime/$stage" "$angled" \
        '<((sys/[a-z]+|[a-z0-9_]+)\.h)>' | grep -v -E '<(mpi|pmix|hdf5|hwloc|omp|jansson|libsmartcols)')" \
        "" "$stage: no foreign header path"
    is "$(find "runtime/$stage" -name '*.[ch]' -exec grep -H -E \
        '<(mpi|pmix|hdf5|hwloc|omp|jansson|libsmartcols|ucp/|slurm/|cuda)' {} +)" "" \
        "$stage needs libc, libyaml and xxHash only"
done
is "$(wrong_includes checkpoint "$quoted" \
    '"((common|hdf5|load|manifest|retention|save)/[^/]+\.h|accel\.h|[a-z0-9_]+\.h)"')" "" \
    "checkpoint includes common, accel.h and its own headers"
is "$(find checkpoint -name '*.[ch]' -exec grep -h -o -E '^#include "[a-z0-9_]+\.h"' {} + | sort -u |
    sed 's/.*"\(.*\)"/\1/' | while read -r header; do
    [ -f "checkpoint/$header" ] || [ "$header" = accel.h ] || echo "$header"
done)" "" "and those exist there"
is "$(find examples -name '*.[ch]' -exec grep -H -E "$quoted" {} + |
    while IFS=: read -r file include; do
        header=${include#*\"}
        header=${header%%\"*}
        [ "$header" = accel.h ] || [ -f "examples/$header" ] || echo "$file: $header"
    done)" "" "examples include no header but accel.h and their own"
is "$(find srun_plugin -name '*.[ch]' -exec grep -H -E '<(mpi|pmix|hdf5|hwloc|ucp/|cuda)' {} +)" "" \
    "the plugin includes no MPI, PMIx, HDF5, hwloc, UCX or CUDA header"
done_testing
