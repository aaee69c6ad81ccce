# state/: what a checkpoint holds, saved and resumed
libaccel_core_la_SOURCES += \
	runtime/state/load/load_part.c \
	runtime/state/load/resume.c \
	runtime/state/local_lines.c \
	runtime/state/model_lines.c \
	runtime/state/params.c \
	runtime/state/registered.c \
	runtime/state/resume_list.c \
	runtime/state/run_boxes.c \
	runtime/state/run_boxes.h \
	runtime/state/save/background.c \
	runtime/state/save/background.h \
	runtime/state/save/background_pool.c \
	runtime/state/save/last_save.c \
	runtime/state/save/retention.c \
	runtime/state/save/save.c \
	runtime/state/save/save.h \
	runtime/state/save/save_notes.c \
	runtime/state/save/staging.c \
	runtime/state/save/staging.h \
	runtime/state/settings_lines.c \
	runtime/state/state.c \
	runtime/state/state.h \
	runtime/state/state_dirs.c \
	runtime/state/state_hooks.c

# Kills in accel_save_state and accel_load_state: a few in the suite; make check-kill has 200.
check_PROGRAMS += tests/faults/state_kill
TESTS += tests/faults/state_kill

# Loads of several ranks; make check-reshard has 64 of them.
unit_tests += tests/unit/test_read_together
tests_unit_test_read_together_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pread
check-reshard: tests/unit/test_read_together
	./tests/unit/test_read_together all
	./tests/unit/test_read_together 64
.PHONY: check-reshard
# Campaigns against the saves of whole runs, at once and in the background; make check-kill and
# check-saves have the long forms.
saves_world = tests/faults/saves_world.c tests/faults/saves_world.h
check_PROGRAMS += tests/faults/save_kill tests/faults/save_calls tests/faults/save_power
tests_faults_save_kill_SOURCES = tests/faults/save_kill.c $(saves_world)
tests_faults_save_calls_SOURCES = tests/faults/save_calls.c $(saves_world) $(disk_shim)
tests_faults_save_power_SOURCES = tests/faults/save_power.c $(saves_world) $(power_model) $(disk_shim)
tests_faults_save_power_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=accel_ckpt_save_publish -Wl,--wrap=accel_ckpt_save_retain \
	-Wl,--wrap=background_begin -Wl,--wrap=background_save_now \
	-Wl,--wrap=background_publish -Wl,--wrap=background_write -Wl,--wrap=background_do
TESTS += tests/faults/save_kill tests/faults/save_calls tests/faults/save_power
check_PROGRAMS += tests/faults/save_steady
tests_faults_save_steady_SOURCES = tests/faults/save_steady.c $(saves_world)
TESTS += tests/faults/save_steady
noinst_PROGRAMS += tests/bench/bench_saves
tests_bench_bench_saves_SOURCES = tests/bench/bench_saves.c $(saves_world)
check-saves: check-programs
	./tests/faults/save_calls 1
	./tests/faults/save_power all
	./tests/faults/save_steady 500
	$(AM_TESTS_ENVIRONMENT) FAULT_KINDS='EIO ENOSPC EDQUOT EXDEV EROFS EINTR short kill' \
	    HOSTILE_EACH=1 prove --exec '' $(top_srcdir)/tests/t/5010-ckpt-faults.t \
	    $(top_srcdir)/tests/t/5055-ckpt-hostile.t
.PHONY: check-saves

# Stops on a slowed disk: four in the suite; make check-staging: 200.
shell_tests += tests/t/5185-train-staging.t tests/t/6145-preempt-staging.t \
	tests/issues/0378-resume-batch.t tests/issues/0379-early-stopping.t
check-staging: check-programs
	$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/t/5185-train-staging.t 200
.PHONY: check-staging

staging_wraps = $(open_world_wraps) -Wl,--wrap=accel_ckpt_save_write \
	-Wl,--wrap=pthread_join -Wl,--wrap=staging_open -Wl,--wrap=ckpt_node_name
unit_tests += tests/unit/test_staging tests/unit/test_staging_stop tests/unit/test_staging_kept
tests_unit_test_staging_kept_SOURCES = tests/unit/test_staging_kept.c $(disk_shim)
tests_unit_test_staging_SOURCES = tests/unit/test_staging.c $(disk_shim)
tests_unit_test_staging_stop_SOURCES = tests/unit/test_staging_stop.c $(disk_shim)
tests_unit_test_staging_kept_LDFLAGS = $(AM_LDFLAGS) $(staging_wraps)
tests_unit_test_staging_LDFLAGS = $(AM_LDFLAGS) $(staging_wraps)
tests_unit_test_staging_stop_LDFLAGS = $(AM_LDFLAGS) $(staging_wraps)
unit_tests += tests/unit/test_settle tests/unit/test_state_words
