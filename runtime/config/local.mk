# config/
libaconfig_la_SOURCES += \
	runtime/config/carrier.c \
	runtime/config/check.c \
	runtime/config/check_engines.c \
	runtime/config/check_fsdp.c \
	runtime/config/config.h \
	runtime/config/deepspeed.c \
	runtime/config/deepspeed.h \
	runtime/config/diag.c \
	runtime/config/encode.c \
	runtime/config/environ.c \
	runtime/config/environ.h \
	runtime/config/environ_cores.c \
	runtime/config/environ_task.c \
	runtime/config/file.c \
	runtime/config/lock.c \
	runtime/config/json_syntax.c \
	runtime/config/keys_accel.def \
	runtime/config/keys_engines.def \
	runtime/config/keys_fsdp.def \
	runtime/config/keys_small.def \
	runtime/config/keys_top.def \
	runtime/config/mesh.c \
	runtime/config/report.h \
	runtime/config/scalar.c \
	runtime/config/schema.c \
	runtime/config/shape.c \
	runtime/config/sources.c \
	runtime/config/support.c \
	runtime/config/validate.c \
	runtime/config/validate.h \
	runtime/config/value.c \
	runtime/config/yaml_events.c
EXTRA_DIST += examples/fsdp.yaml examples/ddp.yaml examples/deepspeed.yaml examples/single.yaml
shell_tests += tests/t/1070-config-engines.t

unit_tests += tests/unit/test_config tests/unit/test_config_encode \
	tests/unit/test_config_maps tests/unit/test_config_sources
tests_unit_test_config_maps_SOURCES = tests/unit/test_config_maps.c
tests_unit_test_config_maps_LDADD = $(unit_ldadd)
tests_unit_test_config_SOURCES = tests/unit/test_config.c
tests_unit_test_config_LDADD = $(unit_ldadd)
tests_unit_test_config_encode_SOURCES = tests/unit/test_config_encode.c
tests_unit_test_config_encode_LDADD = $(unit_ldadd)
tests_unit_test_config_sources_SOURCES = tests/unit/test_config_sources.c
tests_unit_test_config_sources_LDADD = $(unit_ldadd)

unit_tests += tests/unit/test_config_keys tests/unit/test_config_limits \
	tests/unit/test_config_shape
tests_unit_test_config_limits_SOURCES = tests/unit/test_config_limits.c
tests_unit_test_config_limits_LDADD = $(unit_ldadd)
tests_unit_test_config_keys_SOURCES = tests/unit/test_config_keys.c
tests_unit_test_config_keys_LDADD = $(unit_ldadd)
tests_unit_test_config_shape_SOURCES = tests/unit/test_config_shape.c
tests_unit_test_config_shape_LDADD = $(unit_ldadd)

unit_tests += tests/unit/test_environ
tests_unit_test_environ_SOURCES = tests/unit/test_environ.c
tests_unit_test_environ_LDADD = $(unit_ldadd)
