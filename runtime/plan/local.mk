# plan/
libaconfig_la_SOURCES += runtime/plan/plan.h
