# handle/: struct accel, which the rooms of a run share
libaccel_core_la_SOURCES += \
	runtime/handle/ckpt_collectives.c \
	runtime/handle/models_and_optimizers.c \
	runtime/handle/run.h \
	runtime/handle/run_checkpoints.h \
	runtime/handle/run_info.c \
	runtime/handle/run_loaders.h \
	runtime/handle/run_loop.h \
	runtime/handle/run_place.h \
	runtime/handle/run_stop.c \
	runtime/handle/status.c
