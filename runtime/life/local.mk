# life/: signals, stops, requeues, the lease and the history of a job
libaccel_core_la_SOURCES += \
	runtime/life/deadline.c \
	runtime/life/grace.c \
	runtime/life/history.c \
	runtime/life/lease.c \
	runtime/life/life.h \
	runtime/life/requeue.c \
	runtime/life/requeue.h \
	runtime/life/sample_wait.c \
	runtime/life/signals.c \
	runtime/life/stop.c \
	runtime/life/warning.c
