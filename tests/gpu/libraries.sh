# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Which of this machine's CUDA libraries the programs of a trial load: those that the loader
# finds by itself, else those of a toolkit, of the driver or of Python's packages (nvidia-*). A
# packed tree has none of them. Read by run, which sets $root.

# Folders that may hold them, the best ones first, a line each.
library_folders() {
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
        [ -z "$folder" ] || printf '%s\n' "$folder/lib64" "$folder/lib" \
            "$folder/targets/x86_64-linux/lib"
    done
    printf '%s\n' /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib
    for python in python3 python; do
        "$python" -c 'import glob, sys
for folder in sys.path:
    print("\n".join(sorted(glob.glob(folder + "/nvidia/*/lib"))))' 2>/dev/null && break
    done
}

# Where the loader finds a library without our help, or nothing.
loader_finds() { # NAME
    printf '%s\n' "${LD_LIBRARY_PATH:-}" | tr ':' '\n' | while IFS= read -r folder; do
        [ -z "$folder" ] || [ ! -e "$folder/$1" ] || echo "$folder/$1"
    done | grep . && return
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
        awk -v name="$1" '$1 == name && /64/ { print $NF; exit }'
}

# The newer one of two libraries of C++: the file's name has its number.
newer() { # FILE FILE
    for file; do
        printf '%s %s\n' "$(basename "$(readlink -f "$file")")" "$file"
    done | sort -V | tail -n 1 | cut -d ' ' -f 2-
}

# Sets $libraries_found, a line "NAME PATH" each, and $TRIAL_LIBRARIES, the folders that programs
# of the tree search first: the tree's own and those that the loader does not know.
find_libraries() {
    libraries_found='' TRIAL_LIBRARIES=$root/lib
    machine_cxx=$(loader_finds libstdc++.so.6)
    # A library of CUDA may need a newer one than accel does, or the other way round.
    if [ "$(newer "$root/lib-cxx/libstdc++.so.6" "${machine_cxx:-/nowhere/lib}")" != "$machine_cxx" ]; then
        TRIAL_LIBRARIES=$TRIAL_LIBRARIES:$root/lib-cxx
    fi
    folders=$(library_folders)
    for library in libcuda.so.1 libnvidia-ml.so.1 $(sed -n 's/^needs //p' "$root/packed.txt") \
        libcudnn.so.9 libnccl.so.2; do
        path=$(loader_finds "$library")
        if [ -z "$path" ]; then
            path=$(printf '%s\n' "$folders" | while IFS= read -r folder; do
                [ ! -e "$folder/$library" ] || echo "$folder/$library"
            done | head -n 1)
            [ -z "$path" ] || case :$TRIAL_LIBRARIES: in
            *:"${path%/*}":*) ;;
            *) TRIAL_LIBRARIES=$TRIAL_LIBRARIES:${path%/*} ;;
            esac
        fi
        libraries_found="$libraries_found${libraries_found:+
}$library ${path:-not found}"
    done
    PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:/usr/local/nvidia/bin
    export PATH TRIAL_LIBRARIES
}
