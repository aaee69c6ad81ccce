#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Launch form x nodes (1, 2) x cluster (mount namespaces, two hosts) x ranks (1, 2, 4, 8):
# every rank once, sizes, nodes and devices right, one port per step; exit codes; and no
# process left.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"

need_plugin
probe=$ACCEL_BUILD/tests/helpers/probe
[ -x "$probe" ] || skip_all "tests/helpers/probe is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
for ranks in 1 2 4 8; do
    for nodes in 1 2; do
        printf 'distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: %s\nnum_machines: %s\n' \
            $ranks $nodes >m$ranks.$nodes.yaml
    done
done
printf 'distributed_type: MULTI_CPU\naccel:\n  preemption: {enabled: false}\n' >codes.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 3\n' >three.yaml
printf 'num_processes: x\n' >bad.yaml
printf '#!/bin/sh\nsrun %s\n' "$probe" >plain.sh
mark=$tap_tmp.mark # in the environment of every client and task, and of nothing else

# What the probes of a run must say, rank by rank, without the port.
wanted() { # RANKS NODES
    awk -v n="$1" -v nodes="$2" 'BEGIN {
        per = n / nodes
        for (i = 0; i < per; i++) gpus = gpus (i ? "," : "") i
        for (r = 0; r < n; r++)
            printf "%d/%d %d/%d %d/%d gpus=%s restart=0\n", r, n, r % per, per,
                int(r / per), nodes, gpus
    }'
}

check() { # DESCRIPTION OUTPUT RANKS NODES
    if [ "$(printf '%s\n' "$2" | sed 's/ port=[0-9?]*//' | sort)" = "$(wanted "$3" "$4" | sort)" ] &&
        [ "$(printf '%s\n' "$2" | sed 's/.*port=//; s/ .*//' | sort -u | wc -l)" = 1 ]; then
        return 0
    fi
    diag "$1 printed:"
    diag "$2"
    diag "want:"
    diag "$(wanted "$3" "$4")"
    return 1
}

batch() { # ARG...: a batch job, to its end
    job=$(timeout "$HANG_S" env ACCEL_TEST_MARK="$mark" sbatch --parsable "$@")
    wait_for_job "$job" 'COMPLETED|FAILED'
}

# One cell in all forms; "" when all are right.
cell() { # RANKS NODES
    cell_file=m$1.$2.yaml cell_gpus=--gres=gpu:$(($1 / $2)) cell_bad=
    cell_size="-N$2 -n$1"
    # shellcheck disable=SC2086
    cell_out=$(timeout "$HANG_S" env ACCEL_TEST_MARK="$mark" srun -Q -O $cell_gpus --accel-config="$cell_file" $cell_size "$probe" 2>&1)
    check srun "$cell_out" "$1" "$2" || cell_bad="$cell_bad srun"
    printf '#!/bin/sh\n#SBATCH --accel-config=%s %s -O %s\nsrun -O %s\n' "$cell_file" "$cell_gpus" \
        "$cell_size" "$probe" >"script.sh"
    batch -o script.out script.sh
    check "#SBATCH" "$(cat script.out)" "$1" "$2" || cell_bad="$cell_bad #SBATCH"
    # shellcheck disable=SC2086
    batch -o plain.out -O $cell_gpus $cell_size --accel-config="$cell_file" plain.sh
    check sbatch "$(cat plain.out)" "$1" "$2" || cell_bad="$cell_bad sbatch"
    # shellcheck disable=SC2086
    cell_out=$(timeout "$HANG_S" env ACCEL_TEST_MARK="$mark" salloc -Q -O $cell_gpus $cell_size --accel-config="$cell_file" srun -O "$probe" 2>&1)
    check salloc "$cell_out" "$1" "$2" || cell_bad="$cell_bad salloc"
    rm -f script.out plain.out
}

code() { # WANT ARG...
    code_want=$1
    shift
    timeout "$HANG_S" env ACCEL_TEST_MARK="$mark" srun -Q -n2 -O "$@" >/dev/null 2>&1
    is $? "$code_want" "$mode: exit $code_want: srun $*"
}

exit_codes() {
    code 0 --accel-config=codes.yaml "$probe"
    code 3 --accel-config=codes.yaml "$probe" exit 3
    code 85 --accel-config=codes.yaml "$probe" exit 85
    code 139 --accel-config=codes.yaml "$probe" signal 11
    code 137 --accel-config=codes.yaml "$probe" signal 9
    code 1 --accel-config=three.yaml "$probe"
    code 255 --accel-config=bad.yaml "$probe"
    printf '#!/bin/sh\nsrun %s exit 3\n' "$probe" >code.sh
    batch -n2 -O -o /dev/null --accel-config=codes.yaml code.sh
    is "$(job_field "$job" ExitCode)" 3:0 "$mode: a batch job ends with its step's code"
}

nothing_left() {
    [ -z "$(squeue -h)" ] && [ -z "$(holders_of "$mark" environ)" ]
}

for mode in mnt net; do
    if { [ $mode = mnt ] && ! can_mnt_mode; } || { [ $mode = net ] && ! can_net_mode; }; then
        skip 10 "no $mode mode here: needs namespaces$([ $mode = mnt ] || echo ' and root')"
        continue
    fi
    for nodes in 1 2; do
        cluster_up --nodes $nodes --mode $mode --cpus 8 --gpus 8
        for ranks in 1 2 4 8; do
            [ $ranks -ge $nodes ] || continue
            cell $ranks $nodes
            is "$cell_bad" "" "$mode, $nodes node(s), $ranks rank(s): srun, #SBATCH, sbatch, salloc"
        done
        [ $nodes = 1 ] || exit_codes
        wait_until nothing_left
        ok $? "$mode, $nodes node(s): no job and no process is left" ||
            diag "$(squeue; holders_of "$mark" environ)"
        no_node_drained
        ok $? "$mode, $nodes node(s): no node is drained"
        cluster_down
    done
done
done_testing
