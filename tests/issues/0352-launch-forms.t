#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: accel launch in the shell of a step hung until it was killed; srun --overcommit was
# refused with a config and ran without; a launcher under srun made one world per task, unsaid.
# accel launch runs its processes here, in a step and in the script of a job of two nodes. Each
# form of srun ends alike with a config and without. torchrun and its like under srun are named,
# once.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/../t/train.sh"
need_plugin
can_mnt_mode || skip_all "two nodes with PMIx need mount namespaces"
probe=$ACCEL_BUILD/tests/helpers/probe
[ -x "$probe" ] || skip_all "tests/helpers/probe is not built"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 4\nnum_machines: 2\n' >four.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 16\nnum_machines: 2\n' >many.yaml
printf 'distributed_type: MULTI_CPU\nnum_processes: 2\n' >two.yaml
cluster_up --nodes 2 --mode mnt --cpus 4

# ---- accel launch inside a job
cat >launch.sh <<LAUNCH
#!/bin/sh
timeout "$HANG_S" "$ACCEL_BUILD/accel" launch --config two.yaml -n 2 sh -c 'echo "\$RANK/\$WORLD_SIZE on \$SLURMD_NODENAME"'
echo "rc \$?"
LAUNCH
chmod +x launch.sh
here='0/2 on n1,1/2 on n1,rc 0'
if command -v mpirun >/dev/null 2>&1; then
    for mpi in none pmix; do
        run_srun -Q -w n1 -n1 --mpi=$mpi ./launch.sh
        is "$(printf '%s\n' "$srun_out" | sort | paste -sd ,)" "$here" "accel launch in the shell of a step, --mpi=$mpi"
    done
    job=$(timeout "$HANG_S" sbatch --parsable -N2 -n2 -o launch.out launch.sh)
    wait_for_job "$job" 'COMPLETED|FAILED'
    is "$(sort launch.out | paste -sd ,)" "$here" "in the script of a job of two nodes: on this one"
else
    skip 3 "mpirun is not installed"
fi

# ---- forms of srun, with and without a config
alike() { # CONFIG FORM...
    config=$1
    shift
    run_srun -Q --mpi=none "$@" true
    plain=$srun_rc
    run_srun -Q --mpi=none --accel-config="$config.yaml" "$@" true
    is "$srun_rc" "$plain" "$config.yaml, srun $*: ends as without it" || diag "$srun_out"
}
while read -r form; do
    # shellcheck disable=SC2086
    alike $form </dev/null
done <<FORMS
many -N2 -n16 --overcommit
many -N2 -n16 -O
many -N2 -n16 -O -m cyclic
many -N2 -O
many -N2 -n16 -O --ntasks-per-node=8
four -N2 -n4
four -N2 -n4 -m cyclic
four -N2 -n4 -m plane=3
four -N2 -n4 -m arbitrary -w n1,n1,n1,n2
four -N2 -n4 -c2
four -N2 -n4 -c2 -O
four -N2 -n4 --ntasks-per-node=2
four -N2 -n4 --ntasks-per-core=1
four -N2 -n4 --exclusive
four -N2-2 -n4
four -n4 -w n1,n2
four -N2 -n4 --mincpus=2
four -N2 -n4 --exact
FORMS
SLURM_OVERCOMMIT=1 && export SLURM_OVERCOMMIT
alike many -N2 -n16
unset SLURM_OVERCOMMIT
cat >over.sh <<JOB
#!/bin/sh
#SBATCH --accel-config=many.yaml --overcommit
srun -Q $probe | wc -l
JOB
for size in "-N2 -n16" ""; do
    rm -f over.out
    # shellcheck disable=SC2086
    job=$(timeout "$HANG_S" sbatch --parsable -o over.out $size over.sh)
    wait_for_job "$job" 'COMPLETED|FAILED'
    is "$(cat over.out)" 16 "sbatch --overcommit ${size:-with the size of the file}: all tasks run"
done

# ---- launchers under srun
printf '#!/bin/sh\nexit 0\n' >torchrun
cp torchrun accelerate
chmod +x torchrun accelerate
hints() { # ARG...: how many hints of a world of its own
    run_srun --accel-config=two.yaml "$@"
    printf '%s\n' "$srun_out" | grep -c 'makes a world of its own in each of the 2 tasks; .* start the script itself'
}
is "$(hints -n2 ./torchrun --nproc_per_node=2 train.py)" 1 "torchrun under srun: one hint"
is "$(hints -n2 ./accelerate launch train.py)" 1 "accelerate launch: one hint"
is "$(hints -n2 sh -c 'exec ./torchrun train.py')" 1 "in a shell: one hint"
is "$(hints -Q -n2 ./torchrun train.py)" 0 "-Q: none"
is "$(hints -n2 ./torchrun --nnodes=2 train.py)" 0 "a launcher that is told of nodes: none"
no_node_drained
ok $? "no node is drained"
done_testing
