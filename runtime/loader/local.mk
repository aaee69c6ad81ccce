# loader/: samples to batches: orders, the rule of batches, threads that read ahead
libaccel_core_la_SOURCES += \
	runtime/loader/batch_plan.c \
	runtime/loader/batch_plan.h \
	runtime/loader/collate.c \
	runtime/loader/collate.h \
	runtime/loader/dispatch_batch.c \
	runtime/loader/fill.c \
	runtime/loader/job_loader.c \
	runtime/loader/loader.c \
	runtime/loader/loader.h \
	runtime/loader/loader_blame.c \
	runtime/loader/loader_impl.h \
	runtime/loader/loader_lines.c \
	runtime/loader/loader_memory.c \
	runtime/loader/loader_open.c \
	runtime/loader/loader_state.c \
	runtime/loader/prefetch.c \
	runtime/loader/prefetch.h \
	runtime/loader/sampler.c \
	runtime/loader/sampler.h \
	runtime/loader/stream.c \
	runtime/loader/stream.h \
	runtime/loader/torch_random.c \
	runtime/loader/torch_random.h \
	runtime/loader/upload_stage.c \
	runtime/loader/upload_stage.h

# The rule against Accelerate's, stated once more, and against its measured rows.
unit_tests += tests/unit/test_batch_plan
tests_unit_test_batch_plan_SOURCES = tests/unit/test_batch_plan.c \
	tests/unit/accelerate_rule.c tests/unit/accelerate_rule.h
tests_unit_test_batch_plan_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) \
	-DGOLDEN='"$(abs_top_srcdir)/tests/data/loader/dataloader_shards.json"'
EXTRA_DIST += tests/data/loader
unit_tests += tests/unit/test_loader
tests_unit_test_loader_SOURCES = tests/unit/test_loader.c tests/unit/accelerate_rule.c \
	tests/unit/accelerate_rule.h
unit_tests += tests/unit/test_loader_batch tests/unit/test_loader_steady
tests_unit_test_loader_steady_SOURCES = tests/unit/test_loader_steady.c $(malloc_count_sources)
unit_tests += tests/unit/test_loader_run
# In checkpoints of runs.
unit_tests += tests/unit/test_loader_lives
# A stop while a sample is waited for.
unit_tests += tests/unit/test_sample_wait tests/unit/test_loader_train
# Accelerate's rows through the public calls.
unit_tests += tests/unit/test_loader_rows
tests_unit_test_loader_rows_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) \
	-DGOLDEN='"$(abs_top_srcdir)/tests/data/loader/dataloader_shards.json"'
unit_tests += tests/unit/test_loader_metrics

# Beside Accelerate itself, where Python has it.
check_PROGRAMS += tests/helpers/loader_rows
shell_tests += tests/t/4220-loaders-accelerate.t tests/issues/0364-empty-source.t

gpu_unit_tests += tests/unit/test_cuda_loader

unit_tests += tests/unit/test_loader_step
