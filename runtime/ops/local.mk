# ops/
libaccel_core_la_SOURCES += \
	runtime/ops/add.c \
	runtime/ops/apply.c \
	runtime/ops/attention.c \
	runtime/ops/backward.c \
	runtime/ops/cross_entropy.c \
	runtime/ops/embedding.c \
	runtime/ops/kv.c \
	runtime/ops/kv.h \
	runtime/ops/layernorm.c \
	runtime/ops/linear.c \
	runtime/ops/ops.c \
	runtime/ops/ops.h \
	runtime/ops/read.c

unit_tests += tests/unit/test_ops
tests_unit_test_ops_SOURCES = tests/unit/test_ops.c tests/unit/reference.c \
	tests/unit/reference.h tests/unit/resident.c tests/unit/resident.h
tests_unit_test_ops_LDADD = $(unit_ldadd)

unit_tests += tests/unit/test_attention
tests_unit_test_attention_SOURCES = tests/unit/test_attention.c tests/unit/op_rig.c \
	tests/unit/op_rig.h
tests_unit_test_attention_LDADD = $(unit_ldadd)
