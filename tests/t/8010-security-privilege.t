#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Nothing of a user's is opened with privilege: slurmd and all below it are traced while
# another user runs srun and sbatch with a config of his own, and a step that fails; no call that
# names the file, or the directory of the step's reports, is made with effective uid 0. And the site file that plugstack.conf names counts for him.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
need_plugin
need_root "a second user"
need_program strace setpriv awk
strace -f true >/dev/null 2>&1 || skip_all "this system allows no tracing"
id -un 65534 >/dev/null 2>&1 || skip_all "no name for user id 65534"
as_user() { # COMMAND...: within two minutes
    HOME=$home timeout -k 5 "$HANG_S" setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
plugin=$ACCEL_BUILD/srun_plugin/.libs/accel_spank.so
home=/
# shellcheck disable=SC2016 # for the inner shell
as_user sh -c '[ -r "$1" ]' sh "$plugin" || skip_all "the build tree is closed to other users"

tap_tmpdir
chmod 755 "$tap_tmp"
cluster_up --nodes 1
chmod 755 "$cluster_dir"
home=$tap_tmp/home
mkdir -m 700 "$home"
printf 'distributed_type: FSDP\naccel: {checkpoint: {keep: 3}}\n' >"$home/job.yaml"
printf 'mixed_precision: bf16\naccel:\n  lock: [mixed_precision]\n' >"$tap_tmp/site.yaml"
echo "required $plugin site=$tap_tmp/site.yaml" >"$cluster_dir/etc/plugstack.conf"
cat >"$home/batch.sh" <<END
#!/bin/sh
#SBATCH --accel-config=$home/job.yaml -o $home/batch.out
srun -Q true
END
chown -R 65534 "$home"
cd / || bail_out "no /"

# Calls with the file's name and effective uid 0, and how many had another. Children begin
# with the uid their parent has then. A call that another process's cut in two is put
# together; numbers of processes come again.
judge() { # TRACE
    awk '
        function uid_of(pid) {
            if (!(pid in euid)) euid[pid] = pid in parent ? uid_of(parent[pid]) : 0
            return euid[pid]
        }
        FNR == NR {
            if ($0 ~ /(clone|clone3|fork|vfork)[ (]/ && match($0, /= [0-9]+$/))
                parent[substr($0, RSTART + 2)] = $1
            next
        }
        / \+\+\+ (exited|killed) / { delete euid[$1]; next }
        { uid_of($1) }
        / (setuid|setreuid|setresuid)\(.*<unfinished/ { begun[$1] = $0; next }
        / <\.\.\. (setuid|setreuid|setresuid) resumed/ { $0 = begun[$1] " = " $NF }
        / (setuid|setreuid|setresuid)\(/ && / = 0$/ {
            args = $0
            sub(/^[^(]*\(/, "", args)
            sub(/ *(<unfinished|\)).*/, "", args)
            n = split(args, a, /, */)
            effective = n == 1 ? a[1] : a[2]
            if (effective !~ /^-1|^4294967295/) euid[$1] = effective
        }
        (/job\.yaml"/ || /\/accel\/steps/ || /"end\.[0-9]/) && !/resumed/ {
            if (uid_of($1) == 0) print "privileged: " $0
            else if (/job\.yaml"/) others++
            else if (/"end\.0\.1", O_WRONLY/) notes++
        }
        END { print "unprivileged: " (others > 0) (notes > 0 ? ", with the note of an end" : "") }' "$1" "$1"
}

# The judge itself: a root daemon, its child that becomes a user, and a child of that.
printf '%s\n' '7 clone(child_stack=NULL) = 8' '8 setresuid(-1, 65534, -1) = 0' \
    '8 openat(AT_FDCWD, "/h/job.yaml", O_RDONLY) = 3' '8 vfork( <unfinished ...>' \
    '9 openat(AT_FDCWD, "/h/job.yaml", O_RDONLY) = 3' '8 <... vfork resumed>) = 9' >"$tap_tmp/good"
is "$(judge "$tap_tmp/good")" "unprivileged: 1" "the judge: calls of the user are his"
echo '7 readlink("/h/job.yaml", 0x1, 9) = -1' >>"$tap_tmp/good"
contains "$(judge "$tap_tmp/good")" "privileged: 7 readlink" "one of root's is found"
printf '%s\n' '7 clone(child_stack=NULL) = 8' '8 setresuid(-1, 65534, -1 <unfinished ...>' \
    '7 openat(AT_FDCWD, "/etc/x", O_RDONLY) = 3' '8 <... setresuid resumed>) = 0' \
    '8 openat(AT_FDCWD, "/h/job.yaml", O_RDONLY) = 3' '8 +++ exited with 0 +++' >"$tap_tmp/cut"
is "$(judge "$tap_tmp/cut")" "unprivileged: 1" "a call that is cut in two is one"
printf '%s\n' '7 clone(child_stack=NULL) = 8' '8 openat(AT_FDCWD, "/h/job.yaml", O_RDONLY) = 3' >>"$tap_tmp/cut"
contains "$(judge "$tap_tmp/cut")" "privileged: 8 openat" "a number that comes again is another process"

slurmd=$(cat "$cluster_dir"/run/slurmd-*.pid)
strace -f -qq -s 400 -o "$tap_tmp/trace" -p "$slurmd" \
    -e 'trace=%file,clone,clone3,fork,vfork,setuid,setreuid,setresuid' 2>"$tap_tmp/strace.err" &
tracer=$!
kill_at_exit $tracer
# shellcheck disable=SC2317 # called by wait_until
traced() { grep -q "^TracerPid:	$tracer$" "/proc/$slurmd/status"; }
wait_until traced || bail_out "strace does not attach: $(cat "$tap_tmp/strace.err")"

out=$(as_user srun -n 2 --accel-config="$home/job.yaml" true 2>&1)
is "$?/$out" "0/" "srun of another user"
# shellcheck disable=SC2016 # for the task
out=$(XDG_STATE_HOME=$home/state as_user srun -n 2 --accel-config="$home/job.yaml" \
    sh -c '[ "$RANK" = 0 ] || exit 3; sleep 600' 2>&1)
is "$?" 3 "srun of another user whose rank fails"
contains "$out" "rank 1 (n1) failed first: exited with code 3" "and is named"
job=$(as_user sbatch --parsable "$home/batch.sh" 2>&1)
wait_for_job "$job" 'COMPLETED|FAILED'
is "$(job_state "$job")" COMPLETED "sbatch with srun in it"
printf 'bogus: 1\n' >"$home/bad.yaml"
as_user srun --accel-config="$home/bad.yaml" true >/dev/null 2>&1
is "$?" 255 "a bad file is refused in srun"
kill "$tracer"
wait "$tracer" 2>/dev/null
calls=$(wc -l <"$tap_tmp/trace")
[ "$calls" -gt 100 ]
ok $? "the trace holds calls of slurmd and its children ($calls)"
is "$(judge "$tap_tmp/trace" | head -n 20)" "unprivileged: 1, with the note of an end" \
    "the files were opened below slurmd, by the batch job's srun and slurmstepd's child, and never as root"

# ---- the site file of plugstack.conf ----
# shellcheck disable=SC2016 # for the task
show='echo "$ACCEL_CONFIG_RESOLVED" | tr ";" "\n" | sed -n "s/^mixed_precision@//p"'
out=$(as_user srun --accel-config="$home/job.yaml" sh -c "$show" 2>&1)
is "$out" "s1l=bf16" "site=/path: the site file's value reaches the tasks"
out=$(ACCEL_MIXED_PRECISION=no as_user srun \
    --accel-config="$home/job.yaml" true 2>&1)
is "$?" 255 "a locked key set by the environment is refused"
contains "$out" "'mixed_precision' is locked to 'bf16' by the site ($tap_tmp/site.yaml:3:10), but is set to 'no'" \
    "naming both places"
chown 12345 "$tap_tmp/site.yaml"
out=$(as_user srun --accel-config="$home/job.yaml" true 2>&1)
is "$?" 255 "a site file of a third user is refused"
contains "$out" "is owned by uid 12345, who is neither root nor you" "and why"
out=$(as_user srun true 2>&1)
is "$?/$out" "0/" "a step without the option reads none of it"
echo "required $plugin sight=/x" >"$cluster_dir/etc/plugstack.conf"
out=$(as_user srun --accel-config="$home/job.yaml" true 2>&1)
is "$?" 255 "an unknown word in plugstack.conf, where site= may be misspelt: refused"
contains "$out" "wrong argument 'sight=/x'" "and named"
no_node_drained
ok $? "no node is drained"
done_testing
