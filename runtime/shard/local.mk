# shard/
libaccel_core_la_SOURCES += \
	runtime/shard/boxes.c \
	runtime/shard/order.c \
	runtime/shard/reduce.c \
	runtime/shard/ring.c \
	runtime/shard/shard.c \
	runtime/shard/shard.h \
	runtime/shard/shard_impl.h \
	runtime/shard/update.c
unit_tests += tests/unit/test_shard
tests_unit_test_shard_SOURCES = tests/unit/test_shard.c
tests_unit_test_shard_LDADD = $(fork_ldadd)
