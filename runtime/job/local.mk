# job/: libacceljob, preemption for programs that train without libaccel. Libc only.
include_HEADERS += runtime/accel_job.h
lib_LTLIBRARIES += libacceljob.la
libacceljob_la_SOURCES = \
	runtime/job/attempt.c \
	runtime/job/attempt.h \
	runtime/job/attempt_rules.c \
	runtime/job/attempt_save.c \
	runtime/job/hash_file.c \
	runtime/job/shield_worker.c
libacceljob_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
EXTRA_libacceljob_la_DEPENDENCIES = runtime/job/libacceljob.map
libacceljob_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
	-Wl,--version-script=$(top_srcdir)/runtime/job/libacceljob.map
libacceljob_la_LIBADD = libapreemption.la libacommon.la
EXTRA_DIST += runtime/job/libacceljob.map
