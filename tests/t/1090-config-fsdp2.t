#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel to-fsdp2: every strategy of version 1 as accelerate converts it, the way back, what
# is said about what gets lost, and that no file is overwritten unasked.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
cd "$tap_tmp" || bail_out "no directory"

run() { # COMMAND...: $code, $out, $err
    "$@" >out 2>err </dev/null
    code=$?
    out=$(cat out)
    err=$(cat err)
}
body() { # FILE: without comments
    grep -v '^#' "$1"
}
v1() { # STRATEGY: what the questionnaire of accelerate writes
    cat <<END
# a comment
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: $1
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_use_orig_params: true
accel:
  checkpoint:
    keep: 3
END
}
want() { # RESHARD: keys of version 2, sorted
    cat <<END
    keep: 3
  checkpoint:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_reshard_after_forward: $1
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_version: 2
accel:
distributed_type: FSDP
fsdp_config:
END
}
sorted() { # FILE
    body "$1" | LC_ALL=C sort
}
convert() { # STRATEGY RESHARD
    v1 "$1" >"$1.yaml"
    run "$accel" to-fsdp2 --config_file "$1.yaml" --output_file "$1.2.yaml"
    is "$code/$out" "0/$1.2.yaml: written, fsdp_version 2" "$1: converted"
    is "$(sorted "$1.2.yaml")" "$(want "$2")" "$1: reshard_after_forward $2"
    is "$(grep -c ' is dropped: ' err)" 4 "$1: a note for each key that is dropped"
    run "$accel" to-fsdp2 --reverse --config-file "$1.2.yaml" --output-file "$1.1.yaml"
    is "$code" 0 "$1: and back"
}
convert FULL_SHARD true
is "$(grep sharding_strategy FULL_SHARD.1.yaml)" "  fsdp_sharding_strategy: FULL_SHARD" \
    "FULL_SHARD comes back"
unlike "$(cat FULL_SHARD.1.yaml)" 'reshard' "reshard_after_forward does not stay"
convert NO_SHARD false
convert SHARD_GRAD_OP false
is "$(grep sharding_strategy SHARD_GRAD_OP.1.yaml)" "  fsdp_sharding_strategy: SHARD_GRAD_OP" \
    "SHARD_GRAD_OP comes back"
convert HYBRID_SHARD true
contains "$err$(v1 HYBRID_SHARD >h.yaml; "$accel" to-fsdp2 --config-file h.yaml --output-file h2.yaml 2>&1)" \
    "HYBRID_SHARD keeps a replica on each node" "HYBRID_SHARD: the lost copies are told"
convert HYBRID_SHARD_ZERO2 false
cat >replicas.yaml <<'END'
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}
parallelism_config: {parallelism_config_dp_replicate_size: 2, parallelism_config_dp_shard_size: 4}
END
run "$accel" to-fsdp2 --reverse --config-file replicas.yaml --output-file r1.yaml
is "$code/$(grep strategy r1.yaml)" "0/  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2" \
    "replicated groups become the HYBRID strategy"

# ---- nothing unasked ----
before=$(cat FULL_SHARD.2.yaml)
run "$accel" to-fsdp2 --config-file FULL_SHARD.yaml --output-file FULL_SHARD.2.yaml
is "$code/$(cat FULL_SHARD.2.yaml)" "73/$before" "an existing output is refused and stays"
run "$accel" to-fsdp2 --config-file NO_SHARD.yaml --output-file FULL_SHARD.2.yaml --overwrite
is "$code" 0 "--overwrite takes it"
is "$(sorted FULL_SHARD.2.yaml)" "$(want false)" "and replaces it"
is "$out" "FULL_SHARD.2.yaml: written, fsdp_version 2; the old file is FULL_SHARD.2.yaml.bak" "which is told"
is "$(cat FULL_SHARD.2.yaml.bak)" "$before" "what was there is kept"
run "$accel" to-fsdp2 --config-file FULL_SHARD.yaml --output-file FULL_SHARD.2.yaml --overwrite
is "$code/$(cat FULL_SHARD.2.yaml.bak)" "73/$before" "and not for another one"
is "$(sorted FULL_SHARD.2.yaml)" "$(want false)" "which stays then"
cp FULL_SHARD.yaml self.yaml
run "$accel" to-fsdp2 --config-file self.yaml --overwrite
is "$code/$(sorted self.yaml)" "0/$(want true)" "--overwrite alone converts the file itself"
passes "and keeps it" cmp FULL_SHARD.yaml self.yaml.bak
run "$accel" to-fsdp2 --config-file FULL_SHARD.yaml
is "$code" 64 "one of the two outputs is required"
run "$accel" to-fsdp2 --output-file x.yaml
is "$code" 64 "so is the input"
run "$accel" to-fsdp2 FULL_SHARD.yaml
is "$code" 64 "it takes no operand"
run "$accel" to-fsdp2 --config-file self.yaml --output-file x.yaml
is "$code/$(test -e x.yaml; echo $?)" "65/1" "a file of version 2 is refused"
contains "$err" "error[A0265]: self.yaml: the file already has fsdp_version 2" "by name"
printf 'distributed_type: MULTI_CPU\n' >cpu.yaml
run "$accel" to-fsdp2 --config-file cpu.yaml --output-file x.yaml
is "$code" 65 "so is another distributed_type"
run "$accel" to-fsdp2 --config-file nowhere.yaml --output-file x.yaml
is "$code" 66 "a missing file"
run env ACCEL_FSDP_VERSION=2 "$accel" to-fsdp2 --config-file FULL_SHARD.yaml --output-file y.yaml
is "$code" 0 "the environment has no say"
done_testing
