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
tests_unit_test_gpt2_SOURCES = tests/unit/test_gpt2.c tests/unit/resident.c \
	tests/unit/resident.h

unit_tests += tests/unit/test_nn
tests_unit_test_nn_SOURCES = tests/unit/test_nn.c tests/unit/resident.c \
	tests/unit/resident.h

unit_tests += tests/unit/test_gpt2_grad
tests_unit_test_gpt2_grad_SOURCES = tests/unit/test_gpt2_grad.c tests/unit/reference.c \
	tests/unit/reference.h tests/unit/resident.c tests/unit/resident.h

unit_tests += tests/unit/test_add_norm
tests_unit_test_add_norm_SOURCES = tests/unit/test_add_norm.c tests/unit/op_rig.c \
	tests/unit/op_rig.h tests/unit/resident.c tests/unit/resident.h
unit_tests += tests/unit/test_recompute
tests_unit_test_recompute_SOURCES = tests/unit/test_recompute.c tests/unit/resident.c \
	tests/unit/resident.h

unit_tests += tests/unit/test_hf_config
tests_unit_test_hf_config_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)

unit_tests += tests/unit/test_generate
tests_unit_test_generate_SOURCES = tests/unit/test_generate.c tests/unit/resident.c \
	tests/unit/resident.h

unit_tests += tests/unit/test_decoder
tests_unit_test_decoder_SOURCES = tests/unit/test_decoder.c tests/unit/resident.c \
	tests/unit/resident.h
