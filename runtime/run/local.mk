# run/: a run from open to close
libaccel_core_la_SOURCES += \
	runtime/run/batch_size_search.c \
	runtime/run/model.c \
	runtime/run/open.c \
	runtime/run/own_compute.c \
	runtime/run/planning.c \
	runtime/run/prepare.c \
	runtime/run/rlimit_nofile.c \
	runtime/run/run_config.c \
	runtime/run/run_impl.h

# Requeue of a batch job, and a trainer reduced to its contract with Slurm to test it.
unit_tests += tests/unit/test_requeue tests/unit/test_stop_answers
tests_unit_test_stop_answers_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=comm_all_reduce
check_PROGRAMS += tests/helpers/several
tests_helpers_several_SOURCES = tests/helpers/several.c examples/points.h
tests_helpers_several_LDADD = libaccel.la
tests_helpers_several_LDFLAGS = -no-install
check_PROGRAMS += tests/helpers/stepper
tests_helpers_stepper_SOURCES = tests/helpers/stepper.c runtime/preemption/requeue.c
tests_helpers_stepper_LDADD = libacommon.la -lm

unit_tests += tests/unit/test_lease tests/unit/test_signals tests/unit/test_warning

unit_tests += tests/unit/test_train_reshard

# Whole runs of the reference trainer.
shell_tests += tests/t/5120-train-lease.t tests/t/6110-train-timelimit.t \
	tests/t/6120-train-user.t tests/t/6300-first-job.t

# Preemption in all its cases; check-preempt adds what takes long, to be run by hand.
shell_tests += tests/t/6130-preempt-table.t tests/t/6140-preempt-lives.t \
	tests/t/6160-preempt-random.t
EXTRA_DIST += doc/preemption.md
PREEMPTIONS = 200
check-preempt: check-programs
	$(AM_TESTS_ENVIRONMENT) ACCEL_LONG_TESTS=1 prove -v --exec '' \
	    $(top_srcdir)/tests/t/6100-train-preempt.t \
	    $(top_srcdir)/tests/t/6110-train-timelimit.t \
	    $(top_srcdir)/tests/t/6130-preempt-table.t
	$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/t/6160-preempt-random.t $(PREEMPTIONS) 2 auto user
	$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/t/6160-preempt-random.t $(PREEMPTIONS) 1 false term
# Stops with more and less time than a save takes, on a slowed disk.
check-deadline: check-programs
	$(AM_TESTS_ENVIRONMENT) $(top_srcdir)/tests/t/5180-train-deadline.t $(PREEMPTIONS)
check-programs: all $(check_PROGRAMS)
.PHONY: check-preempt check-deadline check-programs

unit_tests += tests/unit/test_train_state

# Weights in Hugging Face's format, into the shards and out of them.
unit_tests += tests/unit/test_weights
tests_unit_test_weights_CPPFLAGS = $(AM_CPPFLAGS) $(weights_data)
unit_tests += tests/unit/test_params tests/unit/test_program_state \
	tests/unit/test_place_cards
tests_unit_test_place_cards_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=boot_exchange
unit_tests += tests/unit/test_objects_forged
tests_unit_test_objects_forged_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=registered_save
unit_tests += tests/unit/test_train_resume
tests_unit_test_train_resume_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=openat
gpu_unit_tests += tests/unit/test_cuda_models
EXTRA_DIST += tests/data/weights doc/weights.md

gpu_unit_tests += tests/unit/test_cuda_attempt tests/unit/test_cuda_step
tests_unit_test_cuda_step_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
gpu_unit_tests += tests/unit/test_cuda_fp8
tests_unit_test_cuda_fp8_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)
gpu_unit_tests += tests/unit/test_cuda_masters tests/unit/test_cuda_ids
unit_tests += tests/unit/test_cuda_room
tests_unit_test_cuda_room_SOURCES = tests/unit/test_cuda_room.c $(cuda_counts_sources)
tests_unit_test_cuda_room_CPPFLAGS = $(AM_CPPFLAGS) $(fakecuda_cppflags)

unit_tests += tests/unit/test_save_last
tests_unit_test_save_last_SOURCES = tests/unit/test_save_last.c $(disk_shim)
unit_tests += tests/unit/test_units tests/unit/test_int8_input tests/unit/test_objects \
	tests/unit/test_local_sgd tests/unit/test_powersgd_run
tests_unit_test_powersgd_run_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=comm_all_reduce
unit_tests += tests/unit/test_damaged_forms tests/unit/test_moments_run \
	tests/unit/test_fp16_run tests/unit/test_fp8_run
tests_unit_test_fp8_run_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) -Wl,--wrap=pread
# Any bits in the scales of a checkpoint: 8 in the suite.
check-scales: tests/unit/test_fp8_run
	./tests/unit/test_fp8_run 3000
.PHONY: check-scales
unit_tests += tests/unit/test_module_precision
tests_unit_test_module_precision_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=comm_all_gather -Wl,--wrap=comm_reduce_scatter
unit_tests += tests/unit/test_fp8_gather
tests_unit_test_fp8_gather_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=comm_all_gather
unit_tests += tests/unit/test_large_masters tests/unit/test_level_memory \
	tests/unit/test_plan_saves
tests_unit_test_plan_saves_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) -Wl,--wrap=malloc \
	-Wl,--wrap=free -Wl,--wrap=ckpt_stage_map -Wl,--wrap=ckpt_stage_unmap
unit_tests += tests/unit/test_fp8_kept
tests_unit_test_fp8_kept_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=cpu_quantize,--wrap=cpu_quantize_blocks
unit_tests += tests/unit/test_averages
# Gradients of accumulated steps.
check_PROGRAMS += tests/helpers/accumulated
tests_helpers_accumulated_LDADD = libaccel.la
tests_helpers_accumulated_LDFLAGS = -no-install
shell_tests += tests/t/4221-gradients-accelerate.t
# Weights of one model of several.
unit_tests += tests/unit/test_model_weights
# Config keys that the program sets.
unit_tests += tests/unit/test_settings
check_PROGRAMS += tests/helpers/settings
tests_helpers_settings_LDADD = libaccel.la
tests_helpers_settings_LDFLAGS = -no-install
shell_tests += tests/t/1075-config-program.t tests/t/6015-slurm-program.t
# A function of the program fails on one rank; the long form has 100 rounds.
unit_tests += tests/unit/test_one_fails
# One rank fails at every place of a call, with the collectives in step.
lockstep_wraps = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc \
	-Wl,--wrap=reallocarray -Wl,--wrap=strdup -Wl,--wrap=pread -Wl,--wrap=pwrite \
	-Wl,--wrap=read -Wl,--wrap=write -Wl,--wrap=fsync -Wl,--wrap=fstat -Wl,--wrap=mkdir \
	-Wl,--wrap=mkdirat -Wl,--wrap=renameat -Wl,--wrap=renameat2 -Wl,--wrap=openat \
	-Wl,--wrap=run_agree -Wl,--wrap=ckpt_agree -Wl,--wrap=comm_open \
	-Wl,--wrap=comm_split -Wl,--wrap=comm_alloc -Wl,--wrap=comm_all_gather \
	-Wl,--wrap=comm_reduce_scatter -Wl,--wrap=comm_all_reduce -Wl,--wrap=comm_broadcast \
	-Wl,--wrap=comm_barrier -Wl,--wrap=comm_gather -Wl,--wrap=comm_abandon \
	-Wl,--wrap=nanosleep -Wl,--wrap=boot_exchange
unit_tests += tests/unit/test_agreements
tests_unit_test_agreements_SOURCES = tests/unit/test_agreements.c tests/unit/lockstep.c \
	tests/unit/lockstep.h tests/unit/agreement_sites.c tests/unit/agreement_sites.h
tests_unit_test_agreements_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) $(lockstep_wraps)
unit_tests += tests/unit/test_objects_calls tests/unit/test_schedules tests/unit/test_locale \
	tests/unit/test_bounds tests/unit/test_narrow_refused tests/unit/test_second_optim \
	tests/unit/test_groups
tests_unit_test_groups_SOURCES = tests/unit/test_groups.c $(accumulate_rows)
unit_tests += tests/unit/test_calls tests/unit/test_track_run
# Batch sizes that fit, regions, seeds.
unit_tests += tests/unit/test_run_helpers
tests_unit_test_run_helpers_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) $(RANDOM123_CFLAGS)
check_PROGRAMS += tests/helpers/weights
tests_helpers_weights_LDADD = libaccel.la
tests_helpers_weights_LDFLAGS = -no-install
shell_tests += tests/t/5040-weights-transformers.t
shell_tests += tests/t/5130-checkpoint-old.t tests/t/5131-checkpoint-forms.t
EXTRA_DIST += tests/data/checkpoint-0.1 tests/data/checkpoint-forms

unit_tests += tests/unit/test_background
tests_unit_test_background_SOURCES = tests/unit/test_background.c $(disk_shim)
tests_unit_test_background_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=accel_ckpt_save_write -Wl,--wrap=pthread_join \
	-Wl,--wrap=accel_ckpt_save_begin -Wl,--wrap=accel_ckpt_save_publish \
	-Wl,--wrap=accel_ckpt_save_retain -Wl,--wrap=accel_ckpt_save_hurry \
	-Wl,--wrap=accel_ckpt_save_cancel -Wl,--wrap=background_snapshot
unit_tests += tests/unit/test_background_auto
tests_unit_test_background_auto_SOURCES = tests/unit/test_background_auto.c $(disk_shim)
tests_unit_test_background_auto_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=accel_ckpt_save_write -Wl,--wrap=staging_open \
	-Wl,--wrap=observe_node_left -Wl,--wrap=observe_process_left
shell_tests += tests/t/5160-train-background.t tests/t/5165-train-keep.t tests/t/5166-train-dicts.t \
	tests/t/5180-train-deadline.t

unit_tests += tests/unit/test_stop_save
tests_unit_test_stop_save_SOURCES = tests/unit/test_stop_save.c $(disk_shim)
tests_unit_test_stop_save_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=accel_ckpt_save_write -Wl,--wrap=deadline_judge \
	-Wl,--wrap=accel_ckpt_save_hurry

unit_tests += tests/unit/test_no_memory
tests_unit_test_no_memory_SOURCES = tests/unit/test_no_memory.c tests/unit/scarce.c \
	tests/unit/scarce.h
tests_unit_test_no_memory_LDFLAGS = $(AM_LDFLAGS) $(scarce_wraps)
unit_tests += tests/unit/test_first_lines tests/unit/test_message_counts
tests_unit_test_message_counts_SOURCES = tests/unit/test_message_counts.c $(disk_shim)
tests_unit_test_message_counts_LDFLAGS = $(AM_LDFLAGS) $(open_world_wraps) \
	-Wl,--wrap=accel_ckpt_save_write

unit_tests += tests/unit/test_state_forged
.PHONY: fuzz-state
fuzz-state: tests/unit/test_state_forged
	tests/unit/test_state_forged 5000
