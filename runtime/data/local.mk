# data/
libaccel_core_la_SOURCES += \
	runtime/data/data.h \
	runtime/data/data_impl.h \
	runtime/data/dataset.c \
	runtime/data/fields.c \
	runtime/data/order.c \
	runtime/data/sample.c
unit_tests += tests/unit/test_data
tests_unit_test_data_SOURCES = tests/unit/test_data.c
tests_unit_test_data_LDADD = $(unit_ldadd)
