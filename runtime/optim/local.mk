# optim/
libaccel_core_la_SOURCES += \
	runtime/optim/optim.c \
	runtime/optim/optim.h \
	runtime/optim/schedule.c
unit_tests += tests/unit/test_optim
tests_unit_test_optim_SOURCES = tests/unit/test_optim.c
tests_unit_test_optim_LDADD = $(unit_ldadd)
check_PROGRAMS += tests/bench/bench_update
tests_bench_bench_update_SOURCES = tests/bench/bench_update.c
tests_bench_bench_update_LDADD = $(unit_ldadd)
