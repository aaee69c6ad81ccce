#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# make gpu-trial: packs programs of this build, the CUDA module and the libraries that they need
# into one file to unpack on a machine with a GPU. Left out are the C library and all of CUDA's,
# which that machine has. The tree inside is laid out as source and build are, so that tests and
# benchmarks run there unchanged; each program is a script that starts the real one.
#     pack.sh SRC BUILD OUT.tar.gz VERSION NVCC-FLAGS PROGRAM...
set -eu

most=$((60 << 20))
[ $# -ge 6 ] || { echo "pack.sh: see its first lines for the arguments" >&2; exit 64; }
src=$1 build=$2 out=$3 version=$4 flags=$5
shift 5
module=runtime/backend/cuda/accel_cuda.so
trace=tests/bench/gpu/.libs/kernel_times.so
work=$(mktemp -d "${TMPDIR:-/tmp}/accel-pack.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
tree=$work/accel-gpu-trial

die() {
    echo "gpu-trial: $1" >&2
    exit 1
}

# A name of FILE below the tree, with its folder made.
place() { # FILE
    mkdir -p "$(dirname "$tree/$1")"
    echo "$tree/$1"
}

# Libraries that the given files load, "NAME PATH" each.
needed_libraries() { # FILE...
    ldd "$@" | awk '$2 == "=>" { print $1, $3 }' | sort -u |
        grep -v -E '^(lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nsl)\.so|ld-)' |
        grep -v -E '^lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvidia-ml|cupti)[._-]'
}

# The programs search the tree's libraries first; other programs, Python above all, must not.
write_starter() { # PROGRAM
    starter=$(place "$1")
    up=$(dirname "$1" | sed 's,[^/.][^/]*,..,g')
    cat >"$starter" <<END
#!/bin/sh
# Starts the program with the libraries of this tree; run says which others it uses.
root=\$(cd "\$(dirname "\$0")/$up" && pwd) || exit 1
LD_LIBRARY_PATH=\${TRIAL_LIBRARIES:-\$root/lib:\$root/lib-cxx}\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "\$root/programs/$1" "\$@"
END
    chmod 755 "$starter"
}

pack_programs() { # PROGRAM...
    for program; do
        strip -o "$(place "programs/$program")" "$build/$program" || die "$program is not built"
        write_starter "$program"
    done
    strip --strip-unneeded -o "$(place $module)" "$build/$module" || die "$module is not built"
    strip --strip-unneeded -o "$(place $trace)" "$build/$trace" || die "$trace is not built"
}

pack_libraries() { # PROGRAM...
    mkdir "$tree/lib" "$tree/lib-cxx"
    (cd "$build" && needed_libraries "$@" $module $trace) >"$work/libraries"
    while read -r name path; do
        [ "$path" != not ] || die "$name, which the programs need, is not found"
        folder=lib
        case $name in libstdc++* | libgcc_s*) folder=lib-cxx ;; esac
        case $path in
        "$build"/*) strip --strip-unneeded -o "$tree/$folder/$name" "$path" ;;
        *) cp -L "$path" "$tree/$folder/$name" ;;
        esac
    done <"$work/libraries"
}

# Tests, benchmarks, their data, and the text that the trainer's tests read.
pack_files() {
    cp "$src/tests/gpu/trial.sh" "$tree/run"
    for file in parts reader libraries; do
        cp "$src/tests/gpu/$file.sh" "$tree/$file.sh"
    done
    (cd "$src" && tar cf - README.md LICENSE CONTRIBUTING.md doc/*.md tests/t/tap.sh \
        tests/t/lib.sh tests/t/train.sh tests/t/gpu.sh tests/t/21[345]*-gpu-*.t \
        tests/data/ops tests/data/weights tests/bench/train_gpu.py \
        tests/bench/gpu/train_torch.py) | (cd "$tree" && tar xf -)
    {
        echo "accel $version, kernels for $(echo "$flags" | grep -o 'code=[a-z_0-9]*' |
            sed 's/code=//' | tr '\n' ' ')"
        ldd "$build/$module" "$build"/tests/bench/bench_cuda |
            sed -n 's/^[^a-z]*\(lib\(cudart\|cublasLt\)\.so\.[0-9]*\) .*/needs \1/p' | sort -u |
            sed 's/needs libcublasLt\(.*\)/&\nneeds libnvrtc\1/'
    } >"$tree/packed.txt"
}

# Other code would be translated on an H100 when a run starts, and has no wgmma.
case $flags in
*code=sm_90a*) ;;
*) die "the module has no kernels for an H100: run ./configure --with-cuda-arch=90, or 80,90 for \
older GPUs too, and make gpu-trial again" ;;
esac
pack_programs "$@"
pack_libraries "$@"
pack_files
chmod -R u+w,go+rX "$tree"
tar -C "$work" --owner=0 --group=0 --numeric-owner -cf - accel-gpu-trial | gzip -4 >"$out.new"
bytes=$(wc -c <"$out.new")
[ "$bytes" -le $most ] || die "the tree has $bytes bytes packed, more than $most: name fewer GPUs"
mv "$out.new" "$out"
sed -n 's/^accel/packed accel/p' "$tree/packed.txt"
echo "$out: $((bytes >> 20)) MiB, $(($(du -sk "$tree" | cut -f 1) >> 10)) MiB unpacked; unpack it and start run"
