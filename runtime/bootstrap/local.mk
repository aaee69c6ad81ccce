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

unit_tests += tests/unit/test_wakes
tests_unit_test_wakes_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_cond_wait \
	-Wl,--wrap=pthread_cond_timedwait -Wl,--wrap=syscall
unit_tests += tests/unit/test_boot
