#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The CLI: help with the example first, exit codes, JSON that parses, and launch: the
# config reaches the program, sizes that disagree are refused, exit codes pass through.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
good=$ACCEL_SRC/tests/data/config/good
cd "$tap_tmp" || bail_out "no directory"

run() { # CMD...: sets code, out, err
    "$@" >out 2>err
    code=$?
    out=$(cat out)
    err=$(cat err)
}

# ---- help and usage ----
run "$accel"
is "$code/$err" "0/" "accel alone exits 0"
[ "$(wc -l <out)" -le 24 ]
ok $? "within the screen of a terminal"
run "$accel" --version
is "$code/$out/$err" "0/accel $(sed -n 's/^AC_INIT(\[accel\], \[\([^]]*\)\].*/\1/p' \
    "$ACCEL_SRC/configure.ac")/" "--version"
run "$accel" --help
is "$code/$err" "0/" "accel --help exits 0 and is silent on stderr"
like "$(head -n 1 out)" '^Example: accel ' "accel --help begins with an example"
for command in $("$accel" | sed -n 's/^  accel \([a-z0-9-]*\) .*/\1/p'); do
    run "$accel" "$command" --help
    is "$code/$err" "0/" "accel $command --help exits 0 and is silent on stderr"
    like "$(head -n 1 out)" "^Example: .*accel $command" "accel $command --help: example first"
    run "$accel" "$command" --no-such-option
    is "$code/$out" "64/" "accel $command: an unknown option is a usage error"
done
run "$accel" chek
is "$code" 64 "an unknown command is a usage error"
contains "$err" "did you mean 'accel check'?" "and says which one was meant"
run "$accel" check
is "$code" 64 "check without a file is a usage error"
run "$accel" explain --json A0010
json=$out
run "$accel" --json explain A0010
is "$code/$out" "0/$json" "--json may stand before the command"
run "$accel" --json
is "$code/$out" "64/" "but not without one"
contains "$err" "error[A0010]: --json is an option of a command, and no command is given" "and says so"
run "$accel" --json launch true
is "$code/$out" "64/" "nor before one that has no such option"
contains "$err" "accel launch: unrecognized option '--json'" "which says so"

if [ -c /dev/full ]; then
    for option in '' --version --help; do
        # shellcheck disable=SC2086
        "$accel" $option >/dev/full 2>err
        is "$?" 74 "accel $option: output that cannot be written is a failure"
    done
else
    skip 3 "no /dev/full"
fi

# ---- check ----
for file in "$good"/*.yaml "$ACCEL_SRC"/examples/*.yaml; do
    run "$accel" check "$file"
    is "$code" 0 "accepted: $(basename "$file")"
    like "$out" '^distributed_type +[A-Z_]+ +[^ ]+:[0-9]+ *$' "with the origin of its values"
    is "$(echo "$err" | sed "s,$good/,,")" "$(cat "${file%.yaml}.notes" 2>/dev/null)" \
        "and with the remarks that it deserves"
done
run "$accel" check "$good/short.yaml" nowhere.yaml
is "$code" 66 "of two files the missing one sets the exit code"
run "$accel" check --keys
like "$out" '^accel\.checkpoint\.keep +whole number +2 ' "--keys lists our keys"
like "$out" '^iam_role_name +refused' "--keys says what is refused"

json() { # DESCRIPTION EXPRESSION: on stdin `out`
    command -v python3 >/dev/null 2>&1 || { skip 1 "no python3 to read JSON"; return; }
    is "$(python3 -c "import json; d = json.load(open('out')); print($2)" 2>&1)" "$3" "$1"
}
"$accel" check --json "$good/all-ours.yaml" >out
json "check --json is JSON and keeps odd text" \
    "[r['value'] for r in d['config'] if r['key'] == 'accel.checkpoint.dir'][0] == '/scratch/gr\u00f6\u00dfe; 50% = \"half\"'" True
"$accel" check --keys --json >out
json "check --keys --json is JSON" "len(d['keys']) > 60" True

"$accel" explain --json >out
json "numbers of a table are numbers in JSON" "all(type(m['exit']) is int for m in d['messages'])" True

# ---- env ----
run env ACCEL_CONFIG="a\"b" SLURM_X=1 "$accel" env --json
is "$code/$err" "0/" "env --json"
json "env --json: version, cores, variables" \
    "d['versions']['accel'] != '' and d['hardware']['cores_usable'] > 0 and d['variables']['ACCEL_CONFIG'] == 'a\"b' and d['variables']['SLURM_X'] == '1'" True
run "$accel" env
is "$code" 0 "env"
like "$out" '^isa +(generic|avx2|avx512) *$' "env shows the ISA"
like "$out" '^libyaml +[0-9]+\.[0-9]+' "env shows library versions"

# ---- launch ----
cat >show <<'END'
#!/bin/sh
printf '%s|%s|%s|%s\n' "${OMPI_COMM_WORLD_SIZE-1}" "${OMPI_COMM_WORLD_RANK-0}" \
    "$ACCEL_CONFIG" "$*"
case $ACCEL_CONFIG_RESOLVED in
accel1\;*distributed_type@f*\;xxh3=*) exit "${SHOW_EXIT-0}" ;;
esac
exit 99
END
chmod +x show
cp "$good/short.yaml" two.yaml
cp "$ACCEL_SRC/examples/single.yaml" one.yaml
here=$(pwd -P)

run "$accel" launch --config one.yaml ./show --data 'a b' -n 7
is "$code/$out" "0/1|0|$here/one.yaml|--data a b -n 7" "one process runs directly"
run env SHOW_EXIT=85 "$accel" launch --config one.yaml ./show
is "$code" 85 "its exit code is passed on"
run "$accel" launch --config two.yaml -n 3 --dry-run ./show
is "$(grep -c '^task [0-2]:' out)" 3 "-n wins over the file"
printf 'distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 2\nmachine_rank: 1\nmain_process_ip: 10.0.0.1\nmain_process_port: 29599\ngpu_ids: 0,1\nrdzv_backend: c10d\n' >meet.yaml
run env -u CUDA_VISIBLE_DEVICES "$accel" launch --no_python --config meet.yaml --dry-run ./show
like "$out" '^MASTER_PORT=29599$' "launch: main_process_port counts"
is "$(grep -o "note: '[a-z_]*" err)" "note: 'rdzv_backend" "and no note says that it is replaced, nor of its like"
run "$accel" check --quiet meet.yaml
is "$(grep -c 'is replaced' err)" 5 "for Slurm it is"
run "$accel" launch --config one.yaml -n 2 ./show
is "$code" 65 "distributed_type NO with -n 2 is refused"
run "$accel" launch --config two.yaml show
is "$code" 66 "a missing program"
contains "$err" "did you mean './show'?" "is looked for here"
run "$accel" launch --config nowhere.yaml ./show
is "$code" 66 "a missing config"
run "$accel" launch --config two.yaml
is "$code" 64 "no program is a usage error"
run "$accel" launch --config two.yaml -n none ./show
is "$code" 64 "-n takes a number"
sed 's/num_processes: 2/num_processes: 4/; s/num_machines: 1/num_machines: 2/' two.yaml \
    >machines.yaml
run "$accel" launch --config machines.yaml ./show
is "$code" 65 "two machines are refused"
grep -v num_processes two.yaml >open.yaml
run "$accel" launch --config open.yaml ./show
is "$code" 64 "without any number of processes it asks for one"
run env PATH="$here" "$accel" launch --config two.yaml ./show
is "$code" 69 "without mpirun"
contains "$err" "openmpi-bin" "the package is named"
if command -v mpirun >/dev/null 2>&1; then
    run timeout "$HANG_S" "$accel" launch --config two.yaml ./show x
    is "$code" 0 "two processes through mpirun"
    is "$(sort out)" "2|0|$here/two.yaml|x
2|1|$here/two.yaml|x" "with rank, size and config"
    run timeout "$HANG_S" env SHOW_EXIT=85 "$accel" launch --config two.yaml ./show
    is "$code" 85 "mpirun's exit code is passed on"
else
    skip 3 "mpirun is not installed"
fi
done_testing
