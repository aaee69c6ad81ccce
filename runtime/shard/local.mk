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
unit_tests += tests/unit/test_queues tests/unit/test_shard tests/unit/test_shard_costs \
	tests/unit/test_shard_limits tests/unit/test_narrow_gradients tests/unit/test_narrow_copies \
	tests/unit/test_narrow_means
tests_unit_test_queues_SOURCES = tests/unit/test_queues.c tests/unit/queue_record.c \
	tests/unit/queue_record.h
gpu_unit_tests += tests/unit/test_cuda_objects
