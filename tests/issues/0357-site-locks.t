#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Mended: a wrong argument of the plugin in plugstack.conf, or a site file that was not
# there, took the site's locks away: the job ran. srun, sbatch and salloc with a config are
# now refused with the line, accel doctor ends 69, and all other sruns never hear of it.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/../t/lib.sh"

need_plugin
cluster_up --nodes 1
tap_tmpdir
chmod 755 "$tap_tmp"
cd "$tap_tmp" || bail_out "no directory"
printf 'distributed_type: MULTI_CPU\nnum_processes: 1\ndebug: true\n' >job.yaml
printf 'accel:\n  lock: [debug]\n' >site.yaml
printf '#!/bin/sh\n#SBATCH --accel-config=job.yaml\ntrue\n' >job.sh
line=$(grep -m1 accel_spank.so "$cluster_plugstack")
plugin=$(printf '%s\n' "$line" | sed 's/^required *//')
number=$(grep -n -m1 accel_spank.so "$cluster_plugstack" | cut -d: -f1)

refused() { # WHAT TEXT COMMAND [ARG]...
    refused_what=$1 refused_text=$2
    shift 2
    timeout "$HANG_S" "$@" >out 2>err </dev/null
    is $? 255 "$refused_what: $1 is refused"
    like "$(cat err)" "$refused_text" "$refused_what: with the place" || diag "$(cat err)"
}

# words WORDS TEXT: what stands behind the plugin; TEXT is the message of the clients
words() {
    printf 'required %s %s\n' "$plugin" "$1" >"$cluster_plugstack.new"
    # A job's own srun reads it at any time.
    mv "$cluster_plugstack.new" "$cluster_plugstack"
    number=1
    refused "$1" "$2" srun --mpi=none --accel-config=job.yaml true
    timeout "$HANG_S" srun true >out 2>err
    is "$? $(cat out err)" "0 " "$1: an srun without a config is unharmed and silent"
    "$ACCEL_BUILD/accel" doctor >out 2>&1
    is $? 69 "$1: accel doctor ends 69"
}

wrong="A0207.: $cluster_plugstack:1: wrong argument"
for w in 'sites=/etc/site.yaml' 'site= /etc/site.yaml' site=site.yaml SITE=/etc/site.yaml \
    'site=site.yaml more' "site=$tap_tmp/site.yaml site=$tap_tmp/site.yaml"; do
    words "$w" "$wrong"
    like "$(sed 's/  */ /g' out)" "^fail plugstack $cluster_plugstack:1: wrong argument" "and names the line"
done
words x "$wrong 'x'"
refused "a wrong word" "$wrong" sbatch job.sh
refused "a wrong word" "$wrong" sbatch --accel-config=job.yaml --wrap true
refused "a wrong word" "$wrong" salloc --accel-config=job.yaml true
is "$(squeue -h)" "" "nothing is queued"
run_srun --accel-config=none true
is "$srun_rc" 0 "a step that turns the config off"

words "site=$tap_tmp/gone.yaml" "gone.yaml is named in $cluster_plugstack:1"
like "$(sed 's/  */ /g' out)" "^fail site file .*no such file" "a site file that is gone"
refused "a missing site file" "no such file" salloc --accel-config=job.yaml true
chmod 666 site.yaml
words "site=$tap_tmp/site.yaml" "site.yaml is named in $cluster_plugstack:1"
like "$(sed 's/  */ /g' out)" "^fail site file .*writ" "one that everybody can write to"
chmod 644 site.yaml
printf 'accel:\n  lock: [debgu]\n' >site.yaml
words "site=$tap_tmp/site.yaml" "did you mean 'debug'"
like "$(sed 's/  */ /g' out)" "^fail site file .*debgu" "one that locks no key"
printf 'accel:\n  lock: [debug]\n' >site.yaml
refused "a locked key" "'debug' is locked" srun --mpi=none --accel-config=job.yaml true
sed -i /debug/d job.yaml
run_srun --mpi=none --accel-config=job.yaml true
is "$srun_rc" 0 "a config that keeps the lock runs"
"$ACCEL_BUILD/accel" doctor >out 2>&1
like "$(sed 's/  */ /g' out)" "^ok site file $tap_tmp/site.yaml, 1 keys locked" "the doctor counts the locks"
refused "accel check" "gone.yaml: .*no such file" sh -c \
    "'$ACCEL_BUILD/accel' check --site gone.yaml job.yaml; [ \$? = 0 ] || exit 255"
printf 'required %s\nrequired %s\n' "$plugin" "$plugin" >"$cluster_plugstack"
refused "two lines" "A0207.: $cluster_plugstack:1: 2 lines load" srun --accel-config=job.yaml true
timeout "$HANG_S" srun true >out 2>&1
is $? 0 "two lines: an srun without a config runs"
"$ACCEL_BUILD/accel" doctor >out 2>&1
is $? 69 "two lines: accel doctor ends 69"
like "$(sed 's/  */ /g' out)" "^fail plugstack accel_spank.so is listed 2 times, first in $cluster_plugstack:1" \
    "and says so"
no_node_drained
ok $? "no node is drained"
cluster_down
done_testing
