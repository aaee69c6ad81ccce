# training/: a file per training technique
libaccel_core_la_SOURCES += \
	runtime/training/ema.c \
	runtime/training/ema.h \
	runtime/training/fp8_scaling.c \
	runtime/training/fp8_scaling.h \
	runtime/training/gradient_compression.c \
	runtime/training/gradient_compression.h \
	runtime/training/local_sgd.c \
	runtime/training/local_sgd.h \
	runtime/training/loss_scale.c \
	runtime/training/loss_scale.h \
	runtime/training/master_weights.c \
	runtime/training/master_weights.h \
	runtime/training/moments_form.c \
	runtime/training/moments_form.h \
	runtime/training/parameter_groups.c \
	runtime/training/parameter_groups.h \
	runtime/training/parts.c \
	runtime/training/parts.h
