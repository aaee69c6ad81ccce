#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the libraries and the plugin export, need and protect: their own names only, hidden
# internals, read-only relocations.
. "$(dirname "$0")/tap.sh"

command -v nm >/dev/null || skip_all "no binutils"

exported() { # FILE: names of defined dynamic symbols, without the version's own
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort
}

one() { # NAME ERE: a shared object of the build
    file=$(find "$ACCEL_BUILD" -path '*/.libs/*' -name "$1.so" ! -path '*/build-asan/*' \
        ! -path '*/_build/*' | head -n1)
    if [ -z "$file" ]; then
        skip 3 "$1 is not built"
        return
    fi
    is "$(exported "$file" | grep -v -E "$2")" "" "$1 exports only $2"
    isnt "$(exported "$file" | grep -c -E "$2")" 0 "and exports something"
    if built_with_sanitizer; then
        skip 1 "sanitizer build"
    else
        like "$(readelf -d -l "$file")" 'BIND_NOW|Flags: NOW' "$1 is bound at once (relro, now)"
    fi
}
one libaccel '^accel_'
one libaccelckpt '^accel_((ckpt|safetensors)_|(exit_code|report|status_name|version)(@|$))'
one accel_spank '^(plugin_|spank_|slurm_spank_)'

plugin=$(find "$ACCEL_BUILD" -path '*/.libs/*' -name accel_spank.so ! -path '*/build-asan/*' | head -n1)
if [ -n "$plugin" ]; then
    is "$(readelf -d "$plugin" | grep NEEDED |
        grep -E 'mpi|pmix|hdf5|hwloc|ucp|ucs|cuda')" "" \
        "the plugin needs no MPI, PMIx, HDF5, hwloc, UCX or CUDA"
else
    skip 1 "the plugin is not built"
fi
is "$(readelf -d "$ACCEL_BUILD/accel" | grep NEEDED | grep -E 'mpi|pmix|hdf5|ucp|ucs|cuda')" "" \
    "the command starts without MPI, PMIx, HDF5, UCX and CUDA"
done_testing
