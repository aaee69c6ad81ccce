# loop/: a step, from batches to the agreement at its end
libaccel_core_la_SOURCES += \
	runtime/loop/batch.c \
	runtime/loop/evaluate.c \
	runtime/loop/groups_of_micro.c \
	runtime/loop/loop.h \
	runtime/loop/optim_step.c \
	runtime/loop/phases.c \
	runtime/loop/schedules.c \
	runtime/loop/step.c \
	runtime/loop/stop_waiting.c
