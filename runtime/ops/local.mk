# ops/
libaccel_core_la_SOURCES += \
	runtime/ops/activate.c \
	runtime/ops/add.c \
	runtime/ops/apply.c \
	runtime/ops/attention.c \
	runtime/ops/backward.c \
	runtime/ops/conv2d.c \
	runtime/ops/cross_entropy.c \
	runtime/ops/dropout.c \
	runtime/ops/embedding.c \
	runtime/ops/kv.c \
	runtime/ops/kv.h \
	runtime/ops/linear.c \
	runtime/ops/linear_fp8.c \
	runtime/ops/linear_fp8.h \
	runtime/ops/losses.c \
	runtime/ops/maxpool2d.c \
	runtime/ops/narrowing.c \
	runtime/ops/narrowing.h \
	runtime/ops/norm.c \
	runtime/ops/ops.c \
	runtime/ops/ops.h \
	runtime/ops/rope.c \
	runtime/ops/sums.c \
	runtime/ops/tensor_access.c \
	runtime/ops/view.c \
	runtime/ops/waiting.c

unit_tests += tests/unit/test_ops
tests_unit_test_ops_SOURCES = tests/unit/test_ops.c tests/unit/reference.c \
	tests/unit/reference.h

unit_tests += tests/unit/test_attention

# The op table, for any test that runs it on a backend.
optable_sources = tests/unit/optable.c tests/unit/optable.h tests/unit/optable_beside.c \
	tests/unit/optable_elementwise.c tests/unit/optable_golden.c \
	tests/unit/optable_linear.c tests/unit/optable_rows.c tests/unit/optable_views.c

unit_tests += tests/unit/test_optable
tests_unit_test_optable_SOURCES = tests/unit/test_optable.c $(optable_sources)
EXTRA_DIST += tests/data/ops

# After a change of the op table's inputs: PyTorch's results again, for review.
update-ops-golden: tests/unit/test_optable$(EXEEXT)
	tests/unit/test_optable --dump | python3 $(srcdir)/tests/data/ops/optable.py \
	    >$(srcdir)/tests/data/ops/optable.golden
.PHONY: update-ops-golden

unit_tests += tests/unit/test_cross_entropy

unit_tests += tests/unit/test_kept_logits

unit_tests += tests/unit/test_linear

unit_tests += tests/unit/test_fp8_linear

unit_tests += tests/unit/test_fp8_waits

unit_tests += tests/unit/test_rope
EXTRA_DIST += tests/data/ops
