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

# Tests see what a program sees: the library, and nothing of accel's beside it.
attempt_world = tests/unit/attempt_world.c tests/unit/attempt_world.h \
	tests/world/run_folder.c tests/world/run_folder.h
job_ldadd = libtap.la libacceljob.la -lm
unit_tests += tests/unit/test_attempt tests/unit/test_attempt_open
tests_unit_test_attempt_SOURCES = tests/unit/test_attempt.c $(attempt_world)
tests_unit_test_attempt_LDADD = $(job_ldadd)
tests_unit_test_attempt_open_SOURCES = tests/unit/test_attempt_open.c $(attempt_world)
tests_unit_test_attempt_open_LDADD = $(job_ldadd)
unit_tests += tests/unit/test_attempt_save
tests_unit_test_attempt_save_SOURCES = tests/unit/test_attempt_save.c $(attempt_world)
tests_unit_test_attempt_save_LDADD = $(job_ldadd)
unit_tests += tests/unit/test_attempt_stop
tests_unit_test_attempt_stop_SOURCES = tests/unit/test_attempt_stop.c $(attempt_world)
tests_unit_test_attempt_stop_LDADD = $(job_ldadd)
unit_tests += tests/unit/test_hash_file
tests_unit_test_hash_file_SOURCES = tests/unit/test_hash_file.c $(attempt_world)
tests_unit_test_hash_file_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_unit_test_hash_file_LDADD = $(job_ldadd)
unit_tests += tests/unit/test_shield_worker
tests_unit_test_shield_worker_LDADD = $(job_ldadd)
