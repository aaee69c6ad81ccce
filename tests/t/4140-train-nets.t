#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# examples/cnn and examples/mlp, written against accel.h alone, reach the accuracy of the
# same networks in PyTorch: of a recorded run, and of one made now where PyTorch is there.
. "$(dirname "$0")/tap.sh"

tap_tmpdir
# Small products: a second thread only waits.
export OMP_NUM_THREADS=1
cd "$tap_tmp" || bail_out "no $tap_tmp"
recorded=$ACCEL_SRC/tests/data/nets.golden
for net in cnn mlp; do
    "$ACCEL_BUILD/examples/$net" >"$net.out" 2>"$net.err"
    ok $? "$net trains" || diag "$(tail -5 "$net.err")"
    rm -rf out
done

# near OURS THEIRS: at most 0.03 below
near() {
    awk -v ours="$1" -v theirs="$2" 'BEGIN { exit !(ours > 0.5 && ours >= theirs - 0.03) }'
}

compare() { # FILE WORDS: lines "NET ACCURACY"
    for net in cnn mlp; do
        ours=$(awk '/^accuracy/ { print $2 }' "$net.out")
        theirs=$(awk -v net=$net '$1 == net { print $2 }' "$1")
        near "${ours:-0}" "${theirs:-1}"
        ok $? "$net: accuracy $ours, $2 $theirs"
    done
}

compare "$recorded" "PyTorch's recorded"
python=${ACCEL_TORCH_PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
    "$python" "$ACCEL_SRC/tests/data/nets.py" >torch.out 2>torch.err
    ok $? "PyTorch trains them" || diag "$(tail -3 torch.err)"
    compare torch.out "PyTorch's now"
else
    skip 3 "no PyTorch for $python (ACCEL_TORCH_PYTHON names another)"
fi
done_testing
