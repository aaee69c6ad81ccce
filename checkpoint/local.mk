# libaccelckpt: sharded checkpoints; knows nothing of runtime/ but common/.
noinst_LTLIBRARIES += libaccelckpt_core.la
include_HEADERS += checkpoint/accel_ckpt.h runtime/weights/safetensors/accel_safetensors.h
libaccelckpt_core_la_SOURCES = \
	checkpoint/load/access.c \
	checkpoint/accel_ckpt.h \
	runtime/weights/safetensors/accel_safetensors.h \
	checkpoint/save/agree.c \
	checkpoint/retention/aside.c \
	checkpoint/manifest/boxes.c \
	checkpoint/ckpt_internal.h \
	checkpoint/save/ckpt_saving.h \
	checkpoint/ckpt_tools.h \
	checkpoint/hdf5/ckpt_hdf5.h \
	checkpoint/load/ckpt_load.h \
	checkpoint/retention/ckpt_retention.h \
	checkpoint/save/ckpt_commit.h \
	checkpoint/manifest/ckpt_manifest.h \
	checkpoint/save/commit.c \
	checkpoint/copy.c \
	checkpoint/manifest/describe.c \
	checkpoint/dirs.c \
	checkpoint/save/drain.c \
	checkpoint/manifest/hash.c \
	checkpoint/retention/keep_file.c \
	checkpoint/retention/keep_rule.c \
	checkpoint/retention/root_lock.c \
	checkpoint/load/list.c \
	checkpoint/save/local_part.c \
	checkpoint/manifest/manifest.c \
	checkpoint/manifest/manifest_check.c \
	checkpoint/manifest/manifest_parse.c \
	checkpoint/save/one_file.c \
	checkpoint/retention/prune.c \
	checkpoint/load/ckpt_read.h \
	checkpoint/load/read.c \
	checkpoint/load/read_ring.c \
	checkpoint/load/read_together.c \
	checkpoint/save/save_steps.c \
	runtime/weights/safetensors/st_convert.c \
	runtime/weights/safetensors/st_header.c \
	runtime/weights/safetensors/st_index.c \
	runtime/weights/safetensors/st_internal.h \
	runtime/weights/safetensors/st_open.c \
	runtime/weights/safetensors/st_read.c \
	runtime/weights/safetensors/st_write.c \
	checkpoint/save/stage.c \
	checkpoint/staged_record.c \
	checkpoint/load/verify.c \
	checkpoint/save/write.c
if HAVE_HDF5
libaccelckpt_core_la_SOURCES += checkpoint/hdf5/ckpt_h5.h checkpoint/hdf5/h5.c checkpoint/hdf5/h5_tree.c \
	checkpoint/hdf5/h5_index.c checkpoint/hdf5/h5_index_check.c \
	checkpoint/hdf5/h5_layout.c
else
libaccelckpt_core_la_SOURCES += checkpoint/hdf5/no_hdf5.c
endif
libaccelckpt_core_la_CFLAGS = $(AM_CFLAGS) $(HDF5_CFLAGS) $(XXHASH_CFLAGS)

libaccelckpt_la_SOURCES =
EXTRA_libaccelckpt_la_DEPENDENCIES = checkpoint/libaccelckpt.map
libaccelckpt_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
	-Wl,--version-script=$(top_srcdir)/checkpoint/libaccelckpt.map
libaccelckpt_core_libs = $(HDF5_LIBS) $(XXHASH_LIBS) -lpthread
libaccelckpt_la_LIBADD = libaccelckpt_core.la libacommon.la $(libaccelckpt_core_libs)
EXTRA_DIST += checkpoint/libaccelckpt.map

# Programs that need no more of us.
ckpt_ldadd = libworld.la libtap.la libaccelckpt_core.la libacommon.la $(libaccelckpt_core_libs) \
	-ldl -lm

unit_tests += tests/unit/test_ckpt_boxes

unit_tests += tests/unit/test_ckpt_save

unit_tests += tests/unit/test_ckpt_one_file
tests_unit_test_ckpt_one_file_LDADD = $(ckpt_ldadd)
tests_unit_test_ckpt_one_file_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=fsync \
	-Wl,--wrap=pwrite

unit_tests += tests/unit/test_keep
tests_unit_test_keep_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ckpt_identify
tests_unit_test_keep_LDADD = $(ckpt_ldadd)

unit_tests += tests/unit/test_show_state
tests_unit_test_show_state_SOURCES = tests/unit/test_show_state.c cli/data/ckpt_state.c
tests_unit_test_show_state_LDADD = $(ckpt_ldadd)

unit_tests += tests/unit/test_ckpt_manifest
tests_unit_test_ckpt_manifest_LDADD = $(ckpt_ldadd)
tests_unit_test_ckpt_manifest_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc \
	-Wl,--wrap=calloc -Wl,--wrap=realloc

unit_tests += tests/unit/test_ckpt_format
tests_unit_test_ckpt_format_LDADD = $(ckpt_ldadd)

if HAVE_HDF5
unit_tests += tests/unit/test_ckpt_write
tests_unit_test_ckpt_write_LDADD = $(ckpt_ldadd)
tests_unit_test_ckpt_write_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pwrite \
	-Wl,--wrap=pread -Wl,--wrap=fallocate -Wl,--wrap=fsync -Wl,--wrap=mmap \
	-Wl,--wrap=nanosleep -Wl,--wrap=clock_ns
tests_unit_test_ckpt_write_CFLAGS = $(AM_CFLAGS) $(HDF5_CFLAGS)
unit_tests += tests/unit/test_ckpt_copy
tests_unit_test_ckpt_copy_LDADD = $(ckpt_ldadd)
tests_unit_test_ckpt_copy_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pread
endif
# Calls of the system that fail where a test says so.
call_faults = tests/unit/call_faults.c tests/unit/call_faults.h
call_faults_wrap = -Wl,--wrap=open -Wl,--wrap=openat -Wl,--wrap=fstat -Wl,--wrap=pread \
	-Wl,--wrap=readdir -Wl,--wrap=fsync -Wl,--wrap=renameat2 -Wl,--wrap=nanosleep \
	-Wl,--wrap=faccessat
unit_tests += tests/unit/test_ckpt_access tests/unit/test_ckpt_unreadable
tests_unit_test_ckpt_access_SOURCES = tests/unit/test_ckpt_access.c $(call_faults)
tests_unit_test_ckpt_access_LDADD = $(ckpt_ldadd)
tests_unit_test_ckpt_access_LDFLAGS = $(AM_LDFLAGS) $(call_faults_wrap)
tests_unit_test_ckpt_unreadable_SOURCES = tests/unit/test_ckpt_unreadable.c $(call_faults)
tests_unit_test_ckpt_unreadable_LDADD = $(ckpt_ldadd)
tests_unit_test_ckpt_unreadable_LDFLAGS = $(tests_unit_test_ckpt_access_LDFLAGS)
# Calls of the system by the program's own definitions, which libhdf5 finds first, too.
disk_shim = tests/unit/disk_shim.c tests/unit/disk_shim.h

power_model = tests/unit/power_model.c tests/unit/power_model.h
unit_tests += tests/unit/test_ckpt_power
tests_unit_test_ckpt_power_SOURCES = tests/unit/test_ckpt_power.c $(power_model) $(disk_shim)
tests_unit_test_ckpt_power_LDADD = $(ckpt_ldadd)

unit_tests += tests/unit/test_ckpt_agree
tests_unit_test_ckpt_agree_SOURCES = tests/unit/test_ckpt_agree.c $(disk_shim)
tests_unit_test_ckpt_agree_LDADD = $(ckpt_ldadd)

unit_tests += tests/unit/test_ckpt_verify
tests_unit_test_ckpt_verify_SOURCES = tests/unit/test_ckpt_verify.c $(disk_shim) \
	cli/data/isolate.c cli/data/isolate.h
tests_unit_test_ckpt_verify_LDADD = $(ckpt_ldadd)

if HAVE_HDF5
unit_tests += tests/unit/test_ckpt_forged
tests_unit_test_ckpt_forged_SOURCES = tests/unit/test_ckpt_forged.c $(disk_shim) \
	cli/data/isolate.c cli/data/isolate.h
tests_unit_test_ckpt_forged_CFLAGS = $(AM_CFLAGS) $(HDF5_CFLAGS)
tests_unit_test_ckpt_forged_LDADD = $(ckpt_ldadd)
endif

noinst_PROGRAMS += tests/bench/bench_ckpt
tests_bench_bench_ckpt_SOURCES = tests/bench/bench_ckpt.c tests/bench/step/peer.c \
	tests/bench/step/peer.h
tests_bench_bench_ckpt_CFLAGS = $(AM_CFLAGS) \
	-DCKPT_TORCH='"$(abs_top_srcdir)/tests/bench/ckpt_torch.py"'
EXTRA_DIST += tests/bench/ckpt_torch.py
tests_bench_bench_ckpt_LDADD = $(ckpt_ldadd)

noinst_PROGRAMS += tests/bench/bench_ckpt_many
tests_bench_bench_ckpt_many_LDADD = $(ckpt_ldadd)

check_PROGRAMS += tests/faults/ckpt_kill
tests_faults_ckpt_kill_LDADD = $(ckpt_ldadd)
TESTS += tests/faults/ckpt_kill

# Damage of every kind, found and never used: a few hundred in the suite.
check_PROGRAMS += tests/faults/ckpt_damage
tests_faults_ckpt_damage_LDADD = $(ckpt_ldadd)
TESTS += tests/faults/ckpt_damage
check-damage: tests/faults/ckpt_damage
	./tests/faults/ckpt_damage 10000
.PHONY: check-damage

# The long forms: 100 (also what the suite's 20 are a part of) and 2000 kills, 200 in
# accel_save_state and accel_load_state, and 2000 of trainings.
check-kill: tests/faults/ckpt_kill tests/faults/state_kill tests/faults/save_kill
	./tests/faults/ckpt_kill 100
	./tests/faults/ckpt_kill 2000
	./tests/faults/state_kill 200
	./tests/faults/save_kill 2000
.PHONY: check-kill

shell_tests += tests/t/5000-ckpt-h5py.t tests/t/5050-ckpt-tools.t tests/t/5056-ckpt-hdf5.t
EXTRA_DIST += doc/checkpoint-format.md

# What a reader needs that is written from the page alone.
check_PROGRAMS += tests/helpers/ckpt_shapes
tests_helpers_ckpt_shapes_LDADD = $(ckpt_ldadd)
shell_tests += tests/issues/0220-format-second-reader.t
shell_tests += tests/issues/0221-format-refused.t
EXTRA_DIST += tests/helpers/second_reader.py

check_PROGRAMS += tests/faults/ckpt_once
tests_faults_ckpt_once_LDADD = $(ckpt_ldadd)
# -rpath makes libtool build a shared object that is never installed
check_LTLIBRARIES += tests/faults/failcall.la
tests_faults_failcall_la_SOURCES = tests/faults/failcall.c
tests_faults_failcall_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_faults_failcall_la_LDFLAGS = -module -avoid-version -rpath /nowhere
tests_faults_failcall_la_LIBADD = -ldl
check_LTLIBRARIES += tests/faults/openlog.la
tests_faults_openlog_la_SOURCES = tests/faults/openlog.c
tests_faults_openlog_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_faults_openlog_la_LDFLAGS = -module -avoid-version -rpath /nowhere
tests_faults_openlog_la_LIBADD = -ldl
check_LTLIBRARIES += tests/faults/disklog.la
tests_faults_disklog_la_SOURCES = tests/faults/disklog.c
tests_faults_disklog_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_faults_disklog_la_LDFLAGS = -module -avoid-version -rpath /nowhere
tests_faults_disklog_la_LIBADD = -ldl
shell_tests += tests/t/5010-ckpt-faults.t tests/t/5055-ckpt-hostile.t

shell_tests += tests/t/5030-ckpt-disk.t

unit_tests += tests/unit/test_safetensors_write
tests_unit_test_safetensors_write_LDADD = $(ckpt_ldadd)
unit_tests += tests/unit/test_json_bytes tests/unit/test_safetensors
tests_unit_test_safetensors_LDADD = $(ckpt_ldadd)
