# ranks/: what ranks tell each other for the program
libaccel_core_la_SOURCES += \
	runtime/ranks/agreement.c \
	runtime/ranks/broadcasts.c \
	runtime/ranks/collective_entry.c \
	runtime/ranks/compare.c \
	runtime/ranks/gathers.c \
	runtime/ranks/padding.c \
	runtime/ranks/pieces.c \
	runtime/ranks/ranks_impl.h \
	runtime/ranks/reductions.c \
	runtime/ranks/rules.c

unit_tests += tests/unit/test_ranks_rules
ranks_world = tests/unit/ranks_world.c tests/unit/ranks_world.h
unit_tests += tests/unit/test_ranks
tests_unit_test_ranks_SOURCES = tests/unit/test_ranks.c $(ranks_world)
tests_unit_test_ranks_LDADD = $(fork_ldadd)
unit_tests += tests/unit/test_ranks_metrics
tests_unit_test_ranks_metrics_SOURCES = tests/unit/test_ranks_metrics.c $(ranks_world) \
	$(loader_world)
tests_unit_test_ranks_metrics_CFLAGS = $(AM_CFLAGS) \
	-DDATA='"$(abs_top_srcdir)/tests/data/ranks"'
tests_unit_test_ranks_metrics_LDADD = $(fork_ldadd)
unit_tests += tests/unit/test_ranks_agree
tests_unit_test_ranks_agree_SOURCES = tests/unit/test_ranks_agree.c $(ranks_world)
tests_unit_test_ranks_agree_LDADD = $(fork_ldadd)
EXTRA_DIST += tests/data/ranks
check_PROGRAMS += tests/helpers/ranks_rows
tests_helpers_ranks_rows_SOURCES = tests/helpers/ranks_rows.c $(ranks_world)
tests_helpers_ranks_rows_LDADD = $(fork_ldadd)
shell_tests += tests/t/4147-ranks-accelerate.t
check_PROGRAMS += tests/bench/bench_ranks
tests_bench_bench_ranks_SOURCES = tests/bench/bench_ranks.c $(ranks_world)
tests_bench_bench_ranks_LDADD = $(fork_ldadd)
gpu_unit_tests += tests/unit/test_ranks_device
tests_unit_test_ranks_device_SOURCES = tests/unit/test_ranks_device.c $(ranks_world)
tests_unit_test_ranks_device_CPPFLAGS = $(AM_CPPFLAGS) \
	-DCUDA_STANDIN='"$(abs_top_builddir)/tests/cuda/accel_cuda.so"' \
	-DNCCL_STANDIN='"$(abs_top_builddir)/tests/cuda/.libs/fake_nccl.so"'
tests_unit_test_ranks_device_LDADD = $(fork_ldadd)
