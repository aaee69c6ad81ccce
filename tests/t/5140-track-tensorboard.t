#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Trackers as others read them: TensorBoard reads the event files of two lives, and
# Python's json and csv the other files; each step is there once, with the same numbers.
. "$(dirname "$0")/tap.sh"

python=${ACCEL_TENSORBOARD_PYTHON:-${ACCEL_PEERS_PYTHON:-python3}}
"$python" -c 'from tensorboard.backend.event_processing import event_accumulator' \
    2>/dev/null ||
    skip_all "no tensorboard in $python (set ACCEL_TENSORBOARD_PYTHON)"
built_with_sanitizer && skip_all "the unit test covers it with sanitizers"
tap_tmpdir
cd "$tap_tmp" || bail_out "no directory"
printf 'use_cpu: true\ndistributed_type: "NO"\n' >one.yaml
ACCEL_CONFIG=$tap_tmp/one.yaml
PYTHONDONTWRITEBYTECODE=1
export ACCEL_CONFIG PYTHONDONTWRITEBYTECODE
unset ACCEL_CONFIG_RESOLVED

for steps in 3 6; do
    "$ACCEL_BUILD/tests/helpers/tracker" out "$steps" 2>said
    is "$?" 0 "a life up to step $steps" || diag "$(cat said)"
done
is "$(find out/track -name 'events.out.tfevents.*' | wc -l)" 2 "each life has an event file"

cat >read.py <<'END'
import csv, json, sys
from tensorboard.backend.event_processing import event_accumulator as ea
from tensorboard.backend.event_processing import plugin_event_accumulator as served

a = ea.EventAccumulator('out/track', size_guidance={ea.SCALARS: 0, ea.TENSORS: 0, ea.HISTOGRAMS: 0})
a.Reload()
# What TensorBoard serves; the other reader takes no texts back.
texts = served.EventAccumulator('out/track', size_guidance={served.TENSORS: 0})
texts.Reload()
log = {r['step']: r for r in map(json.loads, open('out/log.jsonl'))}
lines = [json.loads(s) for s in open('out/track/track.jsonl')]
rows = list(csv.DictReader(open('out/track/track.csv', newline='')))
number = 0


def check(good, what):
    global number
    number += 1
    print(0 if good else 1, what)


def jsonl(name):
    return [(r['step'], r['value']) for r in lines if r['name'] == name]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1e-6 * max(1, abs(y)) for x, y in zip(a, b))


steps = [1, 2, 3, 4, 5, 6]
for name, key in (('train/loss', 'loss'), ('train/lr', 'lr'), ('train/grad_norm', 'grad_norm')):
    s = a.Scalars(name)
    check([x.step for x in s] == steps, name + ': each step once')
    check(near([x.value for x in s], [log[i][key] for i in steps]), name + ': the numbers of the log')
    check([i for i, v in jsonl(name)] == steps and
          near([v for i, v in jsonl(name)], [log[i][key] for i in steps]), name + ': in JSONL as well')
mine = steps + [7, 8]
check([(x.step, x.value) for x in a.Scalars('own/square')] == [(i, i * i) for i in mine],
      'a number of the program')
check([(x.step, x.tensor_proto.string_val[0].decode()) for x in texts.Tensors('own/note')] ==
      [(i, 'step **%d**' % i) for i in mine], 'texts')
check(texts.SummaryMetadata('own/note').plugin_data.plugin_name == 'text', 'with the plugin of texts')
h = a.Histograms('own/spread')
check([x.step for x in h] == mine and all(
    v.histogram_value.num == 100 and v.histogram_value.max == 99 * (v.step + 1) and
    v.histogram_value.sum == 4950 * (v.step + 1) and sum(v.histogram_value.bucket) == 100
    for v in h), 'histograms')
check([(int(r['step']), float(r['value'])) for r in rows if r['name'] == 'own/square'] ==
      [(i, i * i) for i in mine], 'CSV: a number')
check([(int(r['step']), r['value']) for r in rows if r['name'] == 'own/note'] ==
      [(i, 'step **%d**' % i) for i in mine], 'CSV: texts')
check([(int(r['step']), json.loads(r['value'])) for r in rows if r['name'] == 'own/spread'] ==
      jsonl('own/spread'), 'CSV: histograms, as in JSONL')
check(all(set(r) == {'step', 'time', 'name', 'value'} for r in lines), 'JSONL: four keys')
print(number)
END
"$python" read.py >found 2>trouble || diag "$(cat trouble)"
is "$(tail -n 1 found)" 17 "all was read"
while read -r wrong what; do
    [ -z "$what" ] || ok "$wrong" "$what"
done <found
done_testing
