# ops/
libaccel_core_la_SOURCES += \
	runtime/ops/add.c \
	runtime/ops/attention.c \
	runtime/ops/backward.c \
	runtime/ops/cross_entropy.c \
	runtime/ops/embedding.c \
	runtime/ops/layernorm.c \
	runtime/ops/linear.c \
	runtime/ops/ops.c \
	runtime/ops/ops.h \
	runtime/ops/read.c
