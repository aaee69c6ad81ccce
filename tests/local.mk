# Tests: C unit tests (tests/unit), shell tests on a live cluster (tests/t); TAP throughout.
noinst_LTLIBRARIES += libtap.la
libtap_la_SOURCES = tests/tap.c tests/tap.h

unit_tests += tests/unit/test_common
tests_unit_test_common_SOURCES = tests/unit/test_common.c
tests_unit_test_common_LDADD = $(unit_ldadd)

check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests) $(shell_tests)
EXTRA_DIST += $(shell_tests)
TEST_EXTENSIONS = .t
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
T_LOG_DRIVER = $(LOG_DRIVER)
