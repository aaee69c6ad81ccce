#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel config default, show and update: what is written, what is never overwritten, and
# that each value's source is told: --set, environment, job file, user file, site file.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"
umask 022
XDG_CONFIG_HOME=$tap_tmp/xdg
export XDG_CONFIG_HOME

run() { # COMMAND...: $code, $out, $err
    "$@" >out 2>err </dev/null
    code=$?
    out=$(cat out)
    err=$(cat err)
}
# Value and source of one key in the table of `show --origin`.
shown() { # KEY
    awk -v key="$1" '$1 == key { sub(/^[^ ]+ +/, ""); gsub(/ +/, " "); sub(/ $/, ""); print }' out
}
have_yaml=
python3 -c 'import yaml' 2>/dev/null && have_yaml=yes
# A YAML file as one line of JSON with sorted keys, as any other reader sees it.
as_json() { # FILE
    python3 -c 'import json, sys, yaml
print(json.dumps(yaml.safe_load(open(sys.argv[1])), sort_keys=True))' "$1"
}

# ---- show --origin: one key from each source ----
mkdir -p xdg/accel
cat >site.yaml <<'END'
debug: true
accel:
  lock: [accel.preemption.requeue, accel.checkpoint.every_steps]
  preemption: {requeue: false}
  checkpoint:
    keep: 9
END
cat >xdg/accel/config.yaml <<'END'
accel:
  checkpoint:
    keep: 8
    every_minutes: 7
    dir: /user
END
cat >job.yaml <<'END'
distributed_type: FSDP
accel:
  checkpoint:
    every_minutes: 6
    dir: /job
END
run env ACCEL_CHECKPOINT_DIR=/env ACCEL_MIXED_PRECISION=bf16 "$accel" config show job.yaml \
    --site site.yaml --origin --set mixed_precision=no
is "$code/$err" "0/" "show --origin"
is "$(shown mixed_precision)" "no flag" "a flag wins over the environment"
is "$(shown accel.checkpoint.dir)" "/env environment ACCEL_CHECKPOINT_DIR" \
    "the environment over the job file"
is "$(shown accel.checkpoint.every_minutes)" "6 job.yaml:4" "the job file over the user file"
is "$(shown accel.checkpoint.keep)" "8 $tap_tmp/xdg/accel/config.yaml:3" \
    "the user file over the site file"
is "$(shown debug)" "true site.yaml:1" "the site file over what is built in"
is "$(shown accel.device)" "auto built-in" "what nobody says is built in"
is "$(shown accel.preemption.requeue)" "false site.yaml:4 (locked)" "a locked key is marked"
is "$(shown accel.checkpoint.every_steps)" "0 built-in (locked)" \
    "one may be locked at what is built in"
rows=$(wc -l <out)
"$accel" check --keys >keys
is "$rows" "$(wc -l <keys)" "all keys are shown"
run "$accel" config show job.yaml --json
is "$(python3 -c 'import json; d = json.load(open("out")); print(len(d["config"]), len(d["config"][0]))' 2>&1)" \
    "$((rows - 1)) 2" "--json has as many, without --origin key and value only" ||
    command -v python3 >/dev/null || skip 0 "no python3"
rm xdg/accel/config.yaml
run "$accel" config show
is "$code/$err" "0/" "show without a file"
like "$out" '^distributed_type +MULTI_CPU *$' "shows what holds without one"

# ---- variables that are no keys: every name the sources mention ----
keys=$(sed -e 1d -e 's/ .*//' -e 's/.*\.//' keys | tr '[:lower:]' '[:upper:]')
(cd "$ACCEL_SRC" && find runtime srun_plugin cli -name '*.[ch]' -exec \
    grep -h -o -E '"ACCEL_[A-Z_]*[A-Z]"' {} +) | tr -d '"' | sort -u |
    grep -v -E '^ACCEL_(OK|UNKNOWN|KEY|E[A-Z]+)$' >variables
[ "$(wc -l <variables)" -ge 15 ]
ok $? "variables of accel itself ($(wc -l <variables))"
is "$(while read -r name; do
    echo "$keys" | grep -qx "${name#ACCEL_}" ||
        env "$name=x" "$accel" check -q job.yaml 2>&1 | sed -n "s/^environment.*/$name: &/p"
done <variables)" "" "none of them is a key, or taken for a misspelt one"
run env ACCEL_CHECKPOINT_KEPE=3 "$accel" check -q job.yaml
is "$code/$(head -n 2 err)" "0/environment ACCEL_CHECKPOINT_KEPE: note: ignored: there is no such key
  cure: did you mean ACCEL_CHECKPOINT_KEEP?" "a misspelt one gets a note"

# ---- locks ----
run "$accel" check --site site.yaml job.yaml --set accel.preemption.requeue=true
is "$code" 78 "a locked key set differently is refused"
is "$(head -n 1 err)" "flag accel.preemption.requeue: error[A0201]: 'accel.preemption.requeue' is locked to 'false' by the site (site.yaml:3:10), but is set to 'true' here" \
    "naming both places"
run "$accel" check -q --site site.yaml job.yaml --set accel.preemption.requeue=false
is "$code" 0 "the same value is none"
printf 'distributed_type: FSDP\naccel:\n  lock: [debug]\n' >lock.yaml
run "$accel" check lock.yaml
is "$code" 65 "only the site file can lock"
contains "$err" "lock.yaml:3:3: error[A0203]" "and the place is told"
printf 'accel:\n  lock: [debgu]\n' >bad-site.yaml
run "$accel" check --site bad-site.yaml job.yaml
contains "$err" "did you mean 'debug'?" "a lock on no key names the nearest"
printf 'accel:\n  lock: debug\n' >bad-site.yaml
run "$accel" check --site bad-site.yaml job.yaml
contains "$err" "bad-site.yaml:2:9: error[A0204]" "a lock that is no list"
run "$accel" check job.yaml --set debgu=true
is "$code" 64 "--set of an unknown key is a usage error"
run "$accel" check job.yaml --set debug
is "$code" 64 "so is one without a value"
run "$accel" launch --config job.yaml --set num_processes=0 -n 1 true
is "$code" 65 "launch takes --set as well"
run "$accel" plan job.yaml --set num_processes=none
is "$code" 65 "and so does plan"

# ---- default ----
run env CUDA_VISIBLE_DEVICES='' "$accel" config default --config_file new.yaml
is "$code/$err" "0/" "default writes a file"
contains "$out" "new.yaml: written; no GPU is visible here" "and says what it did not see"
unlike "$(cat new.yaml)" 'use_cpu|num_' "which it does not turn into a device or a size"
mkdir driver
ln -s "$ACCEL_BUILD/tests/helpers/.libs/fake_nvml.so" driver/libnvidia-ml.so.1
run env -u CUDA_VISIBLE_DEVICES FAKE_NVML="$ACCEL_SRC/tests/data/topo/pcie4.nvml" \
    LD_LIBRARY_PATH="$tap_tmp/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$accel" config default --config-file gpus.yaml
is "$out" "gpus.yaml: written for 4 GPUs" "NVML says how many there are where no list does"
before=$(cat new.yaml)
run "$accel" check -q new.yaml
is "$code/$err" "0/" "that is good"
run "$accel" config default --config-file new.yaml
is "$code" 73 "it overwrites none"
contains "$err" "error[A0260]: new.yaml" "and says so"
is "$(cat new.yaml)" "$before" "the file is what it was"
run env CUDA_VISIBLE_DEVICES='' "$accel" config default
is "$code/$(ls xdg/accel)" "0/config.yaml" "without a name it is the user file"
rm xdg/accel/config.yaml
run env -u HOME -u XDG_CONFIG_HOME "$accel" config default
is "$code" 73 "without a home it asks for a name"
run "$accel" config default --mixed-precision fp8
is "$code" 64 "a precision that default does not offer"
run "$accel" config default new2.yaml
is "$code" 64 "default takes no operand"
mkdir closed
if [ "$(id -u)" != 0 ]; then
    chmod 555 closed
    run "$accel" config default --config-file closed/x.yaml
    is "$code" 73 "a directory one may not write"
else
    run "$accel" config default --config-file /proc/x.yaml
    is "$code" 73 "a directory one may not write"
fi
is "$(find . -name '*.yaml.??????')" "" "no temporary file is left"
like "$(stat -c %a new.yaml)" '^644$' "the mode is what the umask allows"

# ---- update ----
printf "# mine\ndistributed_type: 'NO'\nfp16: false\ndynamo_backend: 'NO'\n" >old.yaml
cp old.yaml was.yaml
chmod 640 old.yaml
run "$accel" config update old.yaml
is "$code" 0 "update"
passes "the old file is kept" cmp old.yaml.bak was.yaml
is "$(stat -c %a old.yaml)" 640 "the mode stays"
unlike "$(cat old.yaml)" '^(fp16|dynamo_backend)' "fp16 is gone, dynamo_backend has moved"
contains "$(cat old.yaml)" "dynamo_config:
  dynamo_backend: 'NO'" "into its map"
run "$accel" config update old.yaml
is "$code/$out" "0/old.yaml: already has the current form" "updating again changes nothing"
printf 'distributed_type: NO\n' >old.yaml
cp old.yaml was.yaml
run "$accel" config update old.yaml
is "$code" 73 "an older .bak is not overwritten"
passes "and then the file is not touched" cmp old.yaml was.yaml
printf 'distributed_type: FSDP\nbogus: 1\n' >bad.yaml
run "$accel" config update bad.yaml
is "$code/$(cat bad.yaml)" "65/distributed_type: FSDP
bogus: 1" "a file with a problem is left alone"
run "$accel" config update nowhere.yaml
is "$code" 66 "a missing file"
ln -s real.yaml link.yaml
printf 'distributed_type: MULTI_CPU\n' >real.yaml
run "$accel" config update link.yaml
is "$code/$(readlink link.yaml)" "0/real.yaml" "a link stays a link"
contains "$(cat real.yaml)" "num_processes: -1" "what it points at is rewritten"
is "$(cat link.yaml.bak)" "distributed_type: MULTI_CPU" "and kept as it was"

# What accelerate's own reader takes for these two files, all keys.
if [ $have_yaml ]; then
    base='"compute_environment": "LOCAL_MACHINE", "debug": false, "distributed_type": "TYPE", "downcast_bf16": false, '
    tail='"enable_cpu_affinity": false, "machine_rank": 0, "main_training_function": "main", "num_machines": 1, "num_processes": COUNT, "rdzv_backend": "static", "same_network": false, "tpu_use_cluster": false, "tpu_use_sudo": false, "use_cpu": false}'
    printf "distributed_type: 'NO'\n" >minimal.yaml
    "$accel" config update minimal.yaml >out
    is "$(as_json minimal.yaml)" "{$(printf '%s' "$base$tail" | sed 's/TYPE/NO/; s/COUNT/1/')" \
        "a minimal file gets the defaults that accelerate has"
    printf "distributed_type: 'NO'\ndynamo_backend: 'NO'\n" >dynamo.yaml
    "$accel" config update dynamo.yaml >out
    is "$(as_json dynamo.yaml)" \
        "{$(printf '%s' "$base\"dynamo_config\": {\"dynamo_backend\": \"NO\"}, $tail" | sed 's/TYPE/NO/; s/COUNT/1/')" \
        "dynamo_backend moves as accelerate moves it"
    printf 'distributed_type: FSDP\nfsdp_config: {version: 1}\n' >fsdp.yaml
    "$accel" config update fsdp.yaml >out
    is "$(as_json fsdp.yaml)" \
        "{$(printf '%s' "$base$tail" | sed 's/TYPE/FSDP/; s/COUNT/-1/; s/"machine_rank"/"fsdp_config": {"fsdp_version": 1}, &/')" \
        "a short inner name is written in full"
else
    skip 3 "no python3 with yaml"
fi

# ---- forms ----
run "$accel" config
is "$code" 64 "questions need a terminal"
contains "$err" "accel config default" "and say what does without"
run "$accel" config sow
is "$code" 64 "an unknown verb"
run "$accel" config update
is "$code" 64 "update needs a file"
run "$accel" config update job.yaml --origin
is "$code" 64 "--origin belongs to show"
done_testing
