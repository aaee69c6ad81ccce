#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Everything that a training and the tools write, as tests/faults/disklog.c sees it: with which
# mode, whose it is, and whether it would survive a loss of power at the moments that count. One
# table has all of it: what no row names fails, and so does a row that nothing fits.
# shellcheck source=tests/t/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/t/train.sh
. "$(dirname "$0")/train.sh"
shims=$ACCEL_BUILD/tests/faults/.libs
accel=$ACCEL_BUILD/accel
[ -f "$shims/disklog.so" ] || skip_all "no shim (shared libraries are off)"
built_with_sanitizer && skip_all "sanitizers and LD_PRELOAD exclude each other"
"$accel" explain A0801 >/dev/null 2>&1 || skip_all "the build tree is not complete"
train_alone

# PATH (ERE below the test's directory), KIND, MODE without a umask, WHEN it has to be durable,
# with its name, and the SOURCES that make and sync it. WHEN:
#   save     when a checkpoint gets its name
#   commit   then, when something is deleted, and at the end
#   delete   when something is deleted, and at the end
#   end      when the program has ended well
#   never    nothing relies on it after a loss of power
# A line "- SOURCE WHY" is one that makes nothing which has a name, or that nothing here runs.
cat >table <<'END'
out(/checkpoints|/track)?	dir	777	commit	runtime/common/path_dir.c runtime/run/prepare.c runtime/track/track_lines.c
out/log\.jsonl(\.part)?	file	666	commit	runtime/observe/lines.c runtime/observe/lines_trim.c
out/track/(track\.(jsonl|csv)(\.part)?|events\.out\.tfevents\.[^/]*)	file	666	commit	runtime/observe/lines.c runtime/observe/lines_trim.c
out/checkpoints/\.lock	file	666	save	runtime/preemption/lease.c
out/checkpoints/history	file	666	never	runtime/preemption/history.c
out/checkpoints/requeue\.2\.0	file	644	never	runtime/preemption/requeue.c
out/checkpoints/staging	file	666	never	checkpoint/staged_record.c
out/checkpoints/retention	file	666	delete	checkpoint/retention/keep_file.c
out/checkpoints/(latest|\.latest\.part)	link	777	delete	checkpoint/save/commit.c
[^/]*(/checkpoints)?/(\.tmp-|\.old-|\.local-)?step_[^/]*	dir	777	commit	checkpoint/save/commit.c checkpoint/save/save_steps.c checkpoint/dirs.c checkpoint/retention/aside.c
[^/]*(/checkpoints)?/[^/]*step_[^/]*/rank_[^/]*\.h5	file	666	commit	checkpoint/save/write.c checkpoint/hdf5/h5_layout.c checkpoint/copy.c checkpoint/save/drain.c
[^/]*(/checkpoints)?/[^/]*step_[^/]*/MANIFEST(\.part)?	file	666	commit	checkpoint/save/commit.c
out/checkpoints/[^/]*step_[^/]*/PLACES	file	666	commit	checkpoint/staged_record.c
out/checkpoints/step_[^/]*/(index\.h5|\.index\.h5\.part)	file	666	end	checkpoint/hdf5/h5_index.c
node	dir	777	commit	runtime/common/path_dir.c
node/accel-[0-9a-f]*(/step_[^/]*)?	dir	700	commit	checkpoint/save/local_part.c
node/accel-[0-9a-f]*/step_[^/]*/rank_[^/]*\.h5	file	666	commit	checkpoint/save/write.c checkpoint/hdf5/h5_layout.c
(weights|exported|merged)	dir	777	delete	runtime/weights/safetensors/st_write.c
(weights|exported|merged)/\.?(model\.safetensors|model-0000[12]-of-00002\.safetensors|model\.safetensors\.index\.json|config\.json)(\.tmp)?	file	666	delete	runtime/weights/safetensors/st_write.c
(exported|merged)/tokenizer\.json	file	666	delete	cli/data/ckpt_model.c
(joined|cut|imported)	dir	777	commit	runtime/common/path_dir.c
(joined|cut|imported)/(latest|\.latest\.part)	link	777	delete	checkpoint/save/commit.c
tokens\.bin(\.[^/]*)?	file	666	end	cli/data/token_output.c
conf(/new)?	dir	777	end	runtime/common/path_dir.c
(conf/new/a|fsdp2)\.yaml(\.[^/]*)?	file	666	end	cli/config/config_write.c
old\.yaml(\.[^/]*)?	file	=640	end	cli/config/config_write.c
accel-selftest\.[^/]*	dir	700	never	cli/selftest/storage.c
accel-selftest\.[^/]*/.*	-	-	never	cli/selftest/storage.c
- cli/doctor/cmd_doctor.c a file without a name
- cli/selftest/short_run.c memory
- runtime/comm/shm/shm_window.c memory
- runtime/common/step_reports.c for what ranks tell srun, which removes it at its end
- runtime/preemption/report.c for srun, too
- srun_plugin/remote_exit.c for srun, too
- runtime/job/attempt.c the directory of another program's checkpoints
END

# What every line of the shim's log says, against the table: umask and names of the test's own
# come in, faults go out, and "row N" for each row that something fitted.
judge() { # UMASK
    awk -F '\t' -v tmp="$tap_tmp/" -v mask="$1" -f "$ACCEL_SRC/tests/t/written-files.awk" table "$DISKLOG" | sort -u
}

# ---- everything that writes ----
cp -r "$ACCEL_SRC/tests/data/weights/gpt2" .
cp "$ACCEL_SRC/tests/data/tokenizer/gpt2.json" .
cp gpt2.json gpt2/tokenizer.json
{ # 512 tokens below 41, the vocabulary of the model (doc/tokens.md)
    printf '\210\330\064\001\001\000\000\000\000\002\000\000'
    head -c 1012 /dev/zero
    awk 'BEGIN { for (i = 0; i < 512; i++) printf "\\%03o\\000", i % 41 }' | xargs -0 printf
} >data.bin
mkdir bin
cat >bin/scontrol <<'END'
#!/bin/sh
echo "JobId=2 JobName=b.sh Requeue=1 Restarts=0 BatchFlag=1 JobState=RUNNING" \
    "EndTime=Unknown PreemptTime=2026-11-21T06:39:01 Command=x"
END
chmod +x bin/scontrol
OMP_NUM_THREADS=1 HOME=$tap_tmp/home PATH=$tap_tmp/bin:$PATH
export OMP_NUM_THREADS HOME PATH
for way in "async: false" "async: true" "async: true, local_dir: $tap_tmp/node"; do
    ways=$((${ways:-0} + 1))
    train_config way$ways.yaml NO_SHARD no 1 1 \
        "checkpoint: {every_steps: 2, keep: 2, keep_best: 1, when_busy: wait, $way}" \
        "track: jsonl,csv,tensorboard"
done

# under WANT COMMAND...: as the user, with the shim; its exit status is WANT
under() {
    under_want=$1
    shift
    # shellcheck disable=SC2086
    $as_user env LD_PRELOAD="$shims/disklog.so:$shims/stop_at.so" DISKLOG="$DISKLOG" "$@" >said 2>&1 8>&1
    under_rc=$?
    [ $under_rc = "$under_want" ] || { wrong="$wrong $*: exit $under_rc;" && diag "$(tail -n 5 said)"; }
    [ $under_rc != 0 ] || printf 'end\t%s\n' "$under_what" >>"$DISKLOG"
}

train() { # WANT STEPS WAY [VARIABLE=VALUE]... [-- ARGUMENT...]
    train_want=$1 train_steps=$2 train_way=$3
    shift 3
    under_what=train
    under "$train_want" ACCEL_CONFIG="way$train_way.yaml" SLURM_JOB_ID=2 "$@" "$TRAIN" --model gpt2 \
        --data data.bin --seq 8 --batch 1 --sample 0 --eval-every 2 --steps "$train_steps" --out out --save weights
}

tool() { # WANT ARGUMENT...
    tool_want=$1
    shift
    under_what=accel
    under "$tool_want" "$accel" "$@"
}

write_all() { # WAYS
    rm -rf out node weights exported merged joined cut imported conf old.yaml* fsdp2.yaml tokens.bin
    : >"$DISKLOG"
    for way in $1; do
        rm -rf out node weights
        train 85 10 "$way" STOP_AT_STEP=5
        train 0 16 "$way" SLURM_RESTART_COUNT=1
    done
    tool 0 ckpt index out/checkpoints
    tool 0 ckpt export --shard-size 10KB out/checkpoints exported
    tool 0 ckpt import weights imported
    tool 0 ckpt merge out/checkpoints joined
    tool 0 ckpt split out/checkpoints cut --shards 2
    : >"$(echo cut/step_*)/MANIFEST"
    tool 0 ckpt repair cut
    tool 0 ckpt prune out/checkpoints --keep 1 --best 0
    tool 0 ckpt repair out/checkpoints
    tool 0 merge-weights -r out/checkpoints merged
    tool 0 tokenize -t gpt2.json -o tokens.bin text.txt
    tool 0 tokenize -t gpt2.json -o tokens.bin text.txt
    tool 0 config default -f conf/new/a.yaml
    printf 'fsdp_config: {fsdp_sharding_strategy: 1}\ndistributed_type: FSDP\n' >old.yaml
    chmod 640 old.yaml
    [ -z "$as_user" ] || chown 65534 old.yaml
    tool 0 config update old.yaml
    tool 0 to-fsdp2 -f way1.yaml -o fsdp2.yaml
    [ "$1" != "1 2 3" ] || tool 0 test -d .
    tool 0 doctor -d .
}

user=
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && id -un 65534 >/dev/null 2>&1; then
    user='setpriv --reuid=65534 --regid=65534 --clear-groups'
    chmod -R a+rX . && chmod 777 .
    # shellcheck disable=SC2016 # for the inner shell
    $user sh -c '"$1" --help >/dev/null 2>&1 && [ -r "$2" ]' sh "$TRAIN" "$shims/disklog.so" || user=
fi
DISKLOG=$tap_tmp/log
: >log
chmod 666 log
for case in "022" "077 $user" "002 $user"; do
    mask=${case%% *} as_user=${case#"$mask"} wrong=
    umask "$mask"
    ways=3
    [ "$mask" != 022 ] || ways="1 2 3"
    write_all "$ways"
    me=$($as_user id -u)
    is "$wrong" "" "umask $mask, user $me: everything is written"
    judge "$mask" >judged
    is "$(grep -v -e '^row ' -e '^event ' judged)" "" "with its mode, and durable when it has to be"
    is "$(find ./*/ ./*.bin ! -user "$me" ! -path './gpt2/*' ! -path './bin/*' ! -name data.bin)" "" "the user's own"
    if [ "$mask" = 022 ]; then
        is "$(grep -c '^row ' judged)" "$(grep -vc '^- ' table)" "something fits each row"
        is "$(grep '^event ' judged)" "$(printf 'event %s\n' 'at the end of accel' 'at the end of train' \
            'when a checkpoint gets its name' 'when a part is deleted' 'when latest is set' 'when something is deleted')" "at each moment"
    fi
done
umask 022

# The table names every file of the source that makes or syncs something.
(cd "$ACCEL_SRC" && grep -lE '^[^*]*(O_CREAT|O_TMPFILE|H5Fcreate|memfd_create|mkdir(at)?\(|mkdtemp|mko?stemp|[ (](sym)?linkat\(|[^a-z](fsync|fdatasync|syncfs|ckpt_fsync|path_sync_name|path_make_dirs)\()' \
    -r --include='*.c' runtime checkpoint cli srun_plugin) | sort >sources
cut -f 5 table | tr ' ' '\n' | cat - table | sed -n 's/^- \([^ ]*\) .*/\1/p; /^[a-z_/0-9]*\.c$/p' | sort -u >named
is "$(diff named sources)" "" "each place of the source that makes or syncs something is in the table"

# ---- another user's directories on a node ----
if [ -z "$user" ]; then
    skip 6 "no second user without root, or the build tree is closed to him"
else
    as_user=$user wrong=
    for theirs in home part; do
        rm -rf out node weights
        train 85 10 3 STOP_AT_STEP=5
        home=$(echo node/accel-*)
        if [ $theirs = home ]; then
            rm -rf "$home"
            their=$home
        else
            their=$home/step_00000008.2.1
        fi
        mkdir "$their"
        mkdir -p "$home/step_00000099.2.0"
        chmod 777 "$their" "$home/step_00000099.2.0"
        : >"$home/step_00000099.2.0/rank"
        train 0 10 3 SLURM_RESTART_COUNT=1
        is "$wrong$(find "$their" -name '*.h5')" "" "$theirs of another user: nothing is written there"
        like "$(cat said)" 'checkpoints go to out/checkpoints only from now on: accel.checkpoint.local_dir failed' "which is said"
        [ -e "$home/step_00000099.2.0/rank" ]
        ok $? "nor removed"
    done
fi
done_testing
