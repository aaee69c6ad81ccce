#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every wrong config of the corpus is refused by srun, sbatch (option and #SBATCH line)
# and salloc with its exact messages, exit 255 and nothing queued; the nodes stay as they
# were.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/bad-configs.sh
. "$(dirname "$0")/bad-configs.sh"

need_plugin
cluster_up --nodes 1
tap_tmpdir
chmod 755 "$tap_tmp"
make_bad_configs "$tap_tmp" || bail_out "cannot make the corpus"
cd "$tap_tmp" || bail_out "no directory"

before=$(sinfo -h -N -o '%N %T %E')
next_job=$(sbatch --parsable --hold --wrap true -o /dev/null) || bail_out "sbatch does not work"
scancel "$next_job"
wait_for_job "$next_job" CANCELLED

# What the messages look like behind Slurm's prefix: empty lines are left out.
want() { # NAME
    grep -v '^ *$' "$ACCEL_SRC/tests/data/config/bad/$1.expected"
    echo "Invalid --accel-config argument: $1.yaml"
}

refused() { # NAME CLIENT ARG...
    refused_name=$1
    shift
    # shellcheck disable=SC2086
    timeout "$HANG_S" $as_reader "$@" >out 2>err </dev/null
    is $? 255 "$refused_name: $1 exits 255"
    is "$(sed "s/^$1: error: //" err)" "$(want "$refused_name")" "$refused_name: messages of $1"
}

count=0
for name in $(bad_config_names); do
    count=$((count + 1))
    as_reader=
    if [ "$name" = 90-unreadable ] && [ "$(id -u)" = 0 ]; then
        as_reader='setpriv --reuid=65534 --clear-groups'
    fi
    refused "$name" srun --accel-config="$name.yaml" hostname
    refused "$name" sbatch --accel-config="$name.yaml" --wrap hostname
    refused "$name" salloc --accel-config="$name.yaml" true
    if [ -z "$as_reader" ]; then
        printf '#!/bin/sh\n#SBATCH --accel-config=%s.yaml\nhostname\n' "$name" >job.sh
        refused "$name" sbatch job.sh
    fi
done
as_reader=
[ "$count" -ge 30 ]
ok $? "at least 30 wrong configs ($count)"

is "$(squeue -h)" "" "nothing is queued"
is "$(sbatch --parsable --hold --wrap true -o /dev/null)" "$((next_job + 1))" \
    "no job id was used"
scancel "$((next_job + 1))"
is "$(sinfo -h -N -o '%N %T %E')" "$before" "sinfo is unchanged"
no_node_drained
ok $? "no node is drained"
done_testing
