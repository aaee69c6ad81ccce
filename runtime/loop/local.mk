# loop/: a step, from batches to the agreement at its end
libaccel_core_la_SOURCES += \
	runtime/loop/accumulation.c \
	runtime/loop/batch.c \
	runtime/loop/evaluate.c \
	runtime/loop/gradient_hooks.c \
	runtime/loop/loader_calls.c \
	runtime/loop/loop.h \
	runtime/loop/optim_step.c \
	runtime/loop/regions.c \
	runtime/loop/schedules.c \
	runtime/loop/state_calls.c \
	runtime/loop/step.c \
	runtime/loop/step_times.c \
	runtime/loop/stop_waiting.c \
	runtime/loop/track_calls.c

# The samples that the calls of the loop give.
unit_tests += tests/unit/test_next
