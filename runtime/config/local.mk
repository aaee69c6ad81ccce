# config/
libaconfig_la_SOURCES += \
	runtime/config/config.h \
	runtime/config/keys_accel.def \
	runtime/config/keys_engines.def \
	runtime/config/keys_fsdp.def \
	runtime/config/keys_small.def \
	runtime/config/keys_top.def \
	runtime/config/python/deepspeed.c \
	runtime/config/python/deepspeed.h \
	runtime/config/python/environ.c \
	runtime/config/python/environ.h \
	runtime/config/python/environ_cores.c \
	runtime/config/python/environ_task.c \
	runtime/config/python/python_modules.c \
	runtime/config/read/diag.c \
	runtime/config/read/document.h \
	runtime/config/read/file.c \
	runtime/config/read/json_syntax.c \
	runtime/config/read/scalar.c \
	runtime/config/read/validate.c \
	runtime/config/read/validate.h \
	runtime/config/read/value.c \
	runtime/config/read/yaml_events.c \
	runtime/config/rules/check.c \
	runtime/config/rules/check_engines.c \
	runtime/config/rules/check_fsdp.c \
	runtime/config/rules/check_track.c \
	runtime/config/rules/mesh.c \
	runtime/config/rules/shape.c \
	runtime/config/rules/support.c \
	runtime/config/schema.c \
	runtime/config/sources/carrier.c \
	runtime/config/sources/encode.c \
	runtime/config/sources/lock.c \
	runtime/config/sources/program.c \
	runtime/config/sources/resolved.c \
	runtime/config/sources/single_value.c \
	runtime/config/sources/single_value.h \
	runtime/config/sources/sources.c
EXTRA_DIST += examples/fsdp.yaml examples/ddp.yaml examples/deepspeed.yaml examples/single.yaml
shell_tests += tests/t/1070-config-engines.t tests/issues/0375-config-accepted.t

unit_tests += tests/unit/test_config tests/unit/test_config_encode \
	tests/unit/test_config_maps tests/unit/test_config_sources tests/unit/test_config_levels
tests_unit_test_config_encode_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=config_schema

unit_tests += tests/unit/test_config_program

unit_tests += tests/unit/test_config_keys tests/unit/test_config_limits \
	tests/unit/test_config_shape

unit_tests += tests/unit/test_environ
