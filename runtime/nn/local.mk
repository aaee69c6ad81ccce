# nn/
libaccel_core_la_SOURCES += \
	runtime/nn/buffers.c \
	runtime/nn/fp8_kept.c \
	runtime/nn/fp8_linears.c \
	runtime/nn/fp8_linears.h \
	runtime/nn/measure.c \
	runtime/nn/module.c \
	runtime/nn/module_call.c \
	runtime/nn/module_precision.c \
	runtime/nn/names.c \
	runtime/nn/nn.h \
	runtime/nn/wrap.c

unit_tests += tests/unit/test_gpt2

unit_tests += tests/unit/test_nn

unit_tests += tests/unit/test_gpt2_grad
tests_unit_test_gpt2_grad_SOURCES = tests/unit/test_gpt2_grad.c tests/unit/reference.c \
	tests/unit/reference.h

unit_tests += tests/unit/test_add_norm tests/unit/test_recompute

unit_tests += tests/unit/test_hf_config
tests_unit_test_hf_config_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)

unit_tests += tests/unit/test_generate

unit_tests += tests/unit/test_decoder
