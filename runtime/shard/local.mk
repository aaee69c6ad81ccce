# shard/
libaccel_core_la_SOURCES += \
	runtime/shard/checkpoint_dtypes.c \
	runtime/shard/compressed.c \
	runtime/shard/flat_boxes.c \
	runtime/shard/fp8_gather.c \
	runtime/shard/fp8_gradients.c \
	runtime/shard/gradient_reduction.c \
	runtime/shard/gradients.c \
	runtime/shard/init.c \
	runtime/shard/masters.c \
	runtime/shard/own_update.c \
	runtime/shard/powersgd_boxes.c \
	runtime/shard/replicated.c \
	runtime/shard/ring.c \
	runtime/shard/shard.c \
	runtime/shard/shard.h \
	runtime/shard/shard_average.c \
	runtime/shard/shard_boxes.c \
	runtime/shard/shard_impl.h \
	runtime/shard/shard_state.c \
	runtime/shard/unit_order.c \
	runtime/shard/unit_ranges.c \
	runtime/shard/update.c

# Tests: a synthetic model on forked ranks; --wrap counts the bytes they send.
shard_wrap = -Wl,--wrap=comm_all_gather -Wl,--wrap=comm_reduce_scatter \
	-Wl,--wrap=comm_all_reduce
noinst_LTLIBRARIES += libshardworld.la
libshardworld_la_SOURCES = tests/unit/shard_world.c tests/unit/shard_world.h
unit_tests += tests/unit/test_queues tests/unit/test_shard tests/unit/test_shard_costs \
	tests/unit/test_shard_limits
tests_unit_test_queues_SOURCES = tests/unit/test_queues.c tests/unit/queue_record.c \
	tests/unit/queue_record.h
tests_unit_test_queues_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_queues_LDFLAGS = $(shard_wrap)
tests_unit_test_shard_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_shard_LDFLAGS = $(shard_wrap)
tests_unit_test_shard_costs_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_shard_costs_LDFLAGS = $(shard_wrap)
tests_unit_test_shard_limits_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_shard_limits_LDFLAGS = $(shard_wrap)
unit_tests += tests/unit/test_narrow_gradients
tests_unit_test_narrow_gradients_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_narrow_gradients_LDFLAGS = $(shard_wrap)
unit_tests += tests/unit/test_narrow_copies
tests_unit_test_narrow_copies_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_narrow_copies_LDFLAGS = $(shard_wrap)
unit_tests += tests/unit/test_narrow_means
tests_unit_test_narrow_means_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_narrow_means_LDFLAGS = $(shard_wrap)
gpu_unit_tests += tests/unit/test_cuda_objects
tests_unit_test_cuda_objects_SOURCES = tests/unit/test_cuda_objects.c $(cuda_device_sources)
tests_unit_test_cuda_objects_LDADD = libshardworld.la $(fork_ldadd)
tests_unit_test_cuda_objects_LDFLAGS = $(shard_wrap)
