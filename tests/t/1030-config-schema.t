#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# accel schema: valid JSON Schema draft-07, the file of the build is what the binary prints and
# lies where the examples say, good configs are valid by it, and wrong values are not where a
# JSON Schema can tell.
# shellcheck source=tests/t/tap.sh
. "$(dirname "$0")/tap.sh"

tap_tmpdir
accel=$ACCEL_BUILD/accel
built=$ACCEL_BUILD/schema/accel.schema.json
cd "$tap_tmp" || bail_out "no directory"

"$accel" schema >schema.json 2>err
is "$?/$(cat err)" "0/" "accel schema"
passes "make writes what accel schema prints" cmp schema.json "$built"
is "$(grep -h -o 'schema=.*' "$ACCEL_SRC"/examples/*.yaml | sort -u)" \
    "schema=../schema/${built##*/}" "an editor finds it from the examples of a built tree"
"$accel" schema accel.checkpoint.keep >key.json 2>err
is "$?/$(cat err)" "0/" "the schema of one key"
contains "$(cat key.json)" '"description": "number of complete checkpoints to keep' "with its meaning"
"$accel" schema accel.checkpoint.kep >out 2>err
is "$?/$(cat out)" "64/" "an unknown key is a usage error"
contains "$(cat err)" "did you mean 'accel.checkpoint.keep'?" "and the nearest is named"
"$accel" schema a b >out 2>err
is "$?" 64 "two keys are a usage error"
if [ -c /dev/full ]; then
    "$accel" schema >/dev/full 2>err
    is "$?" 74 "a full disk is an I/O error"
else
    skip 1 "no /dev/full"
fi

# The other names that the schema has for keys inside a map are names for the parser.
"$accel" check --keys | sed 's/^.*_config\.//; s/ .*//' >full
jq -r --rawfile full full '($full | split("\n")) as $full | .properties | to_entries[] |
    select(.key | endswith("_config")) | select(.value.anyOf[0].properties) |
    "\(.key): {\(.value.anyOf[0].properties | keys - $full | map(. + ": ") | join(", "))}"' schema.json >maps
[ "$(grep -c '_config: {.*: ' maps)" -ge 7 ]
ok $? "the schema has other names in maps ($(wc -l <maps))"
{ echo 'distributed_type: "NO"' && cat maps; } >all.yaml
is "$("$accel" check -q all.yaml 2>&1 | grep 'unknown key')" "" "each of them is one for the parser"

python3 -c 'import jsonschema, yaml' 2>/dev/null || {
    skip 1 "no python3 with jsonschema and yaml"
    done_testing
}

# What a JSON Schema cannot tell: rules between keys, what YAML itself drops or refuses,
# octal and duplicate keys, which a YAML reader resolves before the schema sees them.
cat >judge.py <<'END'
import json, sys
import jsonschema, yaml

schema = json.load(open(sys.argv[1]))
jsonschema.Draft7Validator.check_schema(schema)
judge = jsonschema.Draft7Validator(schema)
for path in sys.argv[2:]:
    try:
        document = yaml.safe_load(open(path, encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError):
        print(path.rsplit("/", 1)[1], "unreadable")
        continue
    errors = list(judge.iter_errors(document))
    print(path.rsplit("/", 1)[1], "wrong" if errors else "good",
          *(e.json_path for e in errors[:3]))
END
python3 judge.py schema.json "$ACCEL_SRC"/examples/*.yaml \
    "$ACCEL_SRC"/tests/data/config/good/*.yaml >good 2>err
is "$?/$(cat err)" "0/" "the schema is a valid draft-07 schema"
[ "$(wc -l <good)" -ge 10 ]
ok $? "at least ten good files were judged ($(wc -l <good))"
is "$(grep -v ' good$' good)" "" "all of them are valid by the schema"

bad=$ACCEL_SRC/tests/data/config/bad
python3 judge.py schema.json "$bad"/*.yaml >verdicts 2>err
is "$?/$(cat err)" "0/" "the wrong files are judged"
for name in 01-key-typo 02-required-key-typo 03-inner-key-typo 04-key-in-wrong-map \
    05-unknown-key 06-word-typo 08-refused-words \
    10-words-of-maps 11-sagemaker 12-wrong-types \
    15-map-is-value 16-value-is-map 20-out-of-range 21-huge-int 27-path-not-expanded \
    28-empty 29-only-comments 30-list-at-top 31-one-word 43-escape-in-value \
    46-twenty-problems 47-null-required 73-three-truth-values 75-ranges-of-maps \
    77-types-of-maps 78-port-and-rank; do
    like "$(grep "^$name.yaml " verdicts)" ' (wrong|unreadable)' "$name is not valid"
done
like "$(grep '^12-' verdicts)" '\$\.' "and the place is told"
done_testing
