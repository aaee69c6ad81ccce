# The CLI: one binary, sub-commands in files of their own.
bin_PROGRAMS += accel
accel_SOURCES = \
	scripts/accel/cli.c \
	scripts/accel/cli.h \
	scripts/accel/cmd_check.c \
	scripts/accel/cmd_ckpt.c \
	scripts/accel/cmd_env.c \
	scripts/accel/cmd_launch.c \
	scripts/accel/main.c
accel_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS)
accel_LDADD = libaccelckpt_core.la libaconfig.la libacommon.la $(SMARTCOLS_LIBS) \
	$(JANSSON_LIBS) $(YAML_LIBS) $(libaccelckpt_core_libs) -ldl

shell_tests += tests/t/1000-config-messages.t tests/t/1010-config-cli.t \
	tests/t/1020-config-fuzz.t
EXTRA_DIST += tests/t/bad-configs.sh tests/data/config
