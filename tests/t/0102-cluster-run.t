#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# `run` passes on status, directory and signals and removes what it started; clusters side
# by side do not disturb each other; wrong usage is refused; an ordinary user can do it too.

# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_slurm
tap_tmpdir
unset ACCEL_CLUSTER_DIR
one=/tmp/accel-t.1.$$ two=/tmp/accel-t.2.$$
# shellcheck disable=SC2016 # expanded at the end
at_exit '"$accel_cluster" down --dir "$one" 2>/dev/null; "$accel_cluster" down --dir "$two" 2>/dev/null'

# shellcheck disable=SC2016 # for the inner shell
out=$(cd "$tap_tmp" && timeout "$HANG_S" "$accel_cluster" run --plugin none --dir "$one" \
    sh -c 'pwd; echo "$SLURM_CONF"; srun -Q pwd; exit 7')
is $? 7 "run passes the exit status on"
is "$out" "$(printf '%s\n' "$tap_tmp" "$one/etc/slurm.conf" "$tap_tmp")" \
    "run keeps the directory, here and in tasks, and sets SLURM_CONF"
cluster_gone "$one"
ok $? "run removes the cluster that it started"

out=$(echo 'two words' | timeout "$HANG_S" "$accel_cluster" run --plugin none \
    --dir "$one" sh -c 'cat')
is "$out" 'two words' "run passes standard input on"

timeout "$HANG_S" "$accel_cluster" run --plugin none --dir "$one" srun sleep 333.$$ \
    >"$tap_tmp/out" 2>&1 &
runner=$!
# shellcheck disable=SC2317 # called by wait_until
job_runs() { [ -n "$(timeout "$HANG_S" squeue -h -t R 2>/dev/null)" ]; }
SLURM_CONF=$one/etc/slurm.conf
export SLURM_CONF
wait_until job_runs
ok $? "run runs a job"
kill -TERM "$runner"
wait "$runner"
isnt $? 0 "run ended by SIGTERM does not exit 0"
wait_until cluster_gone "$one" "333.$$"
ok $? "run ended by SIGTERM removes cluster and job"

# Both start at the same moment.
"$accel_cluster" up --plugin none --dir "$one" --nodes 2 >"$tap_tmp/one" 2>&1 &
first=$!
"$accel_cluster" up --plugin none --dir "$two" --nodes 2 >"$tap_tmp/two" 2>&1 &
second=$!
wait "$first"
ok $? "two at once: the first is up"
wait "$second"
ok $? "two at once: the second is up"
for dir in "$one" "$two"; do
    SLURM_CONF=$dir/etc/slurm.conf
    run_srun -N2 --mpi=pmix printenv SLURM_CONF
    is "$(echo "$srun_out" | sort | tr '\n' ' ')" \
        "$dir/etc/n1/slurm.conf $dir/etc/n2/slurm.conf " "tasks are of their own cluster"
done
fails "up where one is up is refused" "$accel_cluster" up --dir "$one"
passes "the first goes down" "$accel_cluster" down --dir "$one"
SLURM_CONF=$two/etc/slurm.conf
run_srun -N2 true
is "$srun_rc" 0 "the second still works"
fails "status of the first is not 0" "$accel_cluster" status --dir "$one"
passes "the second goes down" "$accel_cluster" down --dir "$two"
cluster_gone "$one" && cluster_gone "$two"
ok $? "nothing is left of both"
passes "down without a cluster is no failure" "$accel_cluster" down --dir "$one"
unset SLURM_CONF

echo mine >"$tap_tmp/file"
fails "up in a directory with other files is refused" "$accel_cluster" up --dir "$tap_tmp"
fails "down there too" "$accel_cluster" down --dir "$tap_tmp"
is "$(cat "$tap_tmp/file")" mine "and they are left alone"
for words in 'up --nodes 0' 'up --nodes x' 'up --mode odd' 'up --dir' 'up --bogus' 'up down' \
    'up extra' 'run' ''; do
    # shellcheck disable=SC2086 # words
    "$accel_cluster" $words >/dev/null 2>&1
    is $? 2 "wrong usage: '$words'"
done

if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && id -un 65534 >/dev/null 2>&1; then
    # The source tree may be closed to other users.
    mkdir "$tap_tmp/scripts"
    cp "$accel_cluster" "$ACCEL_SRC"/scripts/cluster-*.sh "$tap_tmp/scripts"
    chmod -R a+rX "$tap_tmp"
    for mode in plain mnt; do
        if [ $mode = mnt ] && ! setpriv --reuid=65534 --regid=65534 --clear-groups \
            unshare -Urm true 2>/dev/null; then
            skip 2 "user namespaces are not allowed"
            continue
        fi
        out=$(cd / && setpriv --reuid=65534 --regid=65534 --clear-groups timeout "$HANG_S" \
            "$tap_tmp/scripts/accel-cluster" run --plugin none --nodes 2 --mode $mode \
            --dir "$one" srun -N2 --mpi=pmix id -u 2>&1)
        is "$out" "$(printf '65534\n65534')" "ordinary user, mode $mode: a step on 2 nodes"
        cluster_gone "$one"
        ok $? "ordinary user, mode $mode: nothing is left"
    done
else
    skip 4 "needs root and a name for user id 65534"
fi
done_testing
