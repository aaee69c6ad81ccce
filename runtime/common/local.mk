# common/
libacommon_la_SOURCES += \
	runtime/common/bf16.c \
	runtime/common/bf16.h \
	runtime/common/common.h \
	runtime/common/error.c \
	runtime/common/messages.def \
	runtime/common/messages/checkpoints.def \
	runtime/common/messages/collectives.def \
	runtime/common/messages/config.def \
	runtime/common/messages/data.def \
	runtime/common/messages/launch.def \
	runtime/common/messages/model.def \
	runtime/common/messages/places.def \
	runtime/common/messages/sources.def \
	runtime/common/messages/system.def \
	runtime/common/messages/training.def \
	runtime/common/path_dir.c \
	runtime/common/path_dir.h \
	runtime/common/path_trust.c \
	runtime/common/path_trust.h \
	runtime/common/port.c \
	runtime/common/port.h \
	runtime/common/resume.c \
	runtime/common/rng.h \
	runtime/common/suggest.c \
	runtime/common/util.c
