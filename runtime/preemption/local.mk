# preemption/: signals, stops, requeues, the lease and the history of a job. A library of its
# own, which needs libc only: libacceljob has it, too.
noinst_LTLIBRARIES += libapreemption.la
# Flags of its own, because a test compiles requeue.c by itself.
libapreemption_la_CFLAGS = $(AM_CFLAGS)
libapreemption_la_SOURCES = \
	runtime/preemption/deadline.c \
	runtime/preemption/grace.c \
	runtime/preemption/history.c \
	runtime/preemption/lease.c \
	runtime/preemption/preemption.h \
	runtime/preemption/report.c \
	runtime/preemption/requeue.c \
	runtime/preemption/requeue.h \
	runtime/preemption/sample_wait.c \
	runtime/preemption/signals.c \
	runtime/preemption/stop.c \
	runtime/preemption/warning.c
