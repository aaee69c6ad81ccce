# plan/
libaconfig_la_SOURCES += \
	runtime/plan/exchange.h \
	runtime/plan/interval.c \
	runtime/plan/layout.c \
	runtime/plan/plan.c \
	runtime/plan/plan.h \
	runtime/plan/plan_cure.c \
	runtime/plan/plan_print.c \
	runtime/plan/shard_layout.c \
	runtime/plan/shard_layout.h
unit_tests += tests/unit/test_plan
