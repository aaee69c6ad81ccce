# preemption/: signals, stops, requeues, the lease and the history of a job
libaccel_core_la_SOURCES += \
	runtime/preemption/deadline.c \
	runtime/preemption/grace.c \
	runtime/preemption/history.c \
	runtime/preemption/lease.c \
	runtime/preemption/preemption.h \
	runtime/preemption/requeue.c \
	runtime/preemption/requeue.h \
	runtime/preemption/sample_wait.c \
	runtime/preemption/signals.c \
	runtime/preemption/stop.c \
	runtime/preemption/warning.c
