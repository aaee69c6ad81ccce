# bootstrap/
libaccel_core_la_SOURCES += \
	runtime/bootstrap/boot.c \
	runtime/bootstrap/boot.h \
	runtime/bootstrap/boot_impl.h \
	runtime/bootstrap/boot_single.c \
	runtime/bootstrap/boot_speaker.c \
	runtime/bootstrap/boot_table.c
if HAVE_PMIX
libaccel_core_la_SOURCES += runtime/bootstrap/boot_pmix.c \
	runtime/bootstrap/helper.c \
	runtime/bootstrap/helper.h
unit_tests += tests/unit/test_helper
else
libaccel_core_la_SOURCES += runtime/bootstrap/no_pmix.c
endif

# N forked ranks for unit tests of every later stage: link $(fork_ldadd)
noinst_LTLIBRARIES += libforkworld.la
libforkworld_la_SOURCES = tests/unit/fork_world.c tests/unit/fork_world.h
fork_ldadd = libforkworld.la $(unit_ldadd)
unit_tests += tests/unit/test_wakes
tests_unit_test_wakes_LDADD = $(fork_ldadd)
tests_unit_test_wakes_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_cond_wait \
	-Wl,--wrap=pthread_cond_timedwait -Wl,--wrap=syscall
# Forked ranks that open whole runs.
open_world = tests/unit/open_world.c tests/unit/open_world.h
open_world_wraps = -Wl,--wrap=boot_open -Wl,--wrap=boot_leave -Wl,--wrap=boot_free

unit_tests += tests/unit/test_boot
tests_unit_test_boot_LDADD = $(fork_ldadd)
