# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# The corpus of wrong configs, for the tests of every front end (accel check, srun,
# sbatch, salloc). Reads tests/data/config/bad: NAME.yaml with NAME.expected, the exact
# messages. Files that are large or not files are made here.

# Fills directory DIR with the corpus; messages are exact for names without directory, so
# run the front end inside DIR.
make_bad_configs() { # DIR
    cp "$ACCEL_SRC"/tests/data/config/bad/*.yaml "$ACCEL_SRC"/tests/data/config/bad/*.json \
        "$1" || return 1
    chmod u+w "$1"/*.yaml "$1"/*.json
    head -c 1048576 /dev/zero | tr '\0' '[' >"$1/80-brackets-1MiB.yaml"
    { printf 'distributed_type: '; head -c 1000000 /dev/zero | tr '\0' 'x'; echo; } \
        >"$1/81-scalar-1MB.yaml"
    head -c 1048577 /dev/zero | tr '\0' '#' >"$1/82-too-large.yaml"
    { echo 'distributed_type: FSDP'; echo 'tpu_env:'; yes -- '- 1' | head -n 12000; } \
        >"$1/83-many-events.yaml"
    head -c 200000 /dev/zero | tr '\0' '{' >"$1/84-braces.yaml"
    mkdir "$1/85-directory.yaml" || return 1
    mkfifo "$1/86-fifo.yaml" || return 1
    ln -s 87-nowhere.yaml "$1/87-loop.yaml" && ln -s 87-loop.yaml "$1/87-nowhere.yaml"
    ln -s /dev/zero "$1/88-device.yaml"
    # 89-missing.yaml is not made, but has a neighbour with a similar name.
    echo "distributed_type: 'NO'" >"$1/89-mising.yaml"
    printf "distributed_type: 'NO'\n" >"$1/90-unreadable.yaml"
    chmod 000 "$1/90-unreadable.yaml"
}

# Names in the order of their numbers, without .yaml.
bad_config_names() {
    for bad_file in "$ACCEL_SRC"/tests/data/config/bad/*.expected; do
        basename "$bad_file" .expected
    done
}

# What is expected of `accel check` and of a front end without exit codes of its own.
bad_config_code() { # NAME
    case $1 in
    69-* | 87-* | 89-*) echo 66 ;;
    90-*) echo 77 ;;
    *) echo 65 ;;
    esac
}
