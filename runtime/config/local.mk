# config/
libaconfig_la_SOURCES += \
	runtime/config/config.h \
	runtime/config/diag.c \
	runtime/config/encode.c \
	runtime/config/load.c \
	runtime/config/report.h \
	runtime/config/scalar.c \
	runtime/config/schema.c \
	runtime/config/validate.c \
	runtime/config/yaml_events.c
EXTRA_DIST += examples/fsdp.yaml examples/ddp.yaml examples/single.yaml
