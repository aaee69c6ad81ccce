# precision/: the policy belongs to the plan, which the command line has, too
libaconfig_la_SOURCES += \
	runtime/precision/fp8_policy.c \
	runtime/precision/levels.c \
	runtime/precision/levels.h \
	runtime/precision/module_policy.c \
	runtime/precision/module_policy.h \
	runtime/precision/policy.c \
	runtime/precision/policy.h
libaccel_core_la_SOURCES += \
	runtime/precision/fp8.c \
	runtime/precision/fp8.h \
	runtime/precision/scaler.c \
	runtime/precision/scaler.h
unit_tests += tests/unit/test_fp8 tests/unit/test_fp8_blocks tests/unit/test_scaler
tests_unit_test_fp8_SOURCES = tests/unit/test_fp8.c tests/unit/fp8_rule.h
tests_unit_test_fp8_blocks_SOURCES = tests/unit/test_fp8_blocks.c tests/unit/fp8_rule.h
shell_tests += tests/t/4223-scaler-torch.t
