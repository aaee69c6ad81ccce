# The CLI: one binary, sub-commands in files of their own.
bin_PROGRAMS += accel
accel_SOURCES = \
	scripts/accel/areas.c \
	scripts/accel/areas.h \
	scripts/accel/cli.c \
	scripts/accel/cli.h \
	scripts/accel/cmd_check.c \
	scripts/accel/cmd_ckpt.c \
	scripts/accel/cmd_completion.c \
	scripts/accel/cmd_config.c \
	scripts/accel/cmd_doctor.c \
	scripts/accel/cmd_env.c \
	scripts/accel/cmd_explain.c \
	scripts/accel/cmd_launch.c \
	scripts/accel/cmd_man.c \
	scripts/accel/cmd_plan.c \
	scripts/accel/cmd_schema.c \
	scripts/accel/cmd_test.c \
	scripts/accel/cmd_tokenize.c \
	scripts/accel/cmd_topo.c \
	scripts/accel/cmd_to_fsdp2.c \
	scripts/accel/commands.c \
	scripts/accel/completion.h \
	scripts/accel/completion_bash.c \
	scripts/accel/config_ask.c \
	scripts/accel/config_make.c \
	scripts/accel/config_make.h \
	scripts/accel/config_values.c \
	scripts/accel/config_values.h \
	scripts/accel/config_write.c \
	scripts/accel/doctor.h \
	scripts/accel/doctor_slurm.c \
	scripts/accel/isolate.c \
	scripts/accel/isolate.h \
	scripts/accel/json_schema.c \
	scripts/accel/json_schema.h \
	scripts/accel/launch.h \
	scripts/accel/launch_env.c \
	scripts/accel/launch_flags.c \
	scripts/accel/launch_fork.c \
	scripts/accel/launch_mpirun.c \
	scripts/accel/main.c \
	scripts/accel/man_accel.c \
	scripts/accel/man_libaccel.c \
	scripts/accel/man_overview.c \
	scripts/accel/man_pages.h \
	scripts/accel/plan_cmd.h \
	scripts/accel/plan_model.c \
	scripts/accel/plan_show.c \
	scripts/accel/report.c \
	scripts/accel/report.h \
	scripts/accel/roff.c \
	scripts/accel/roff.h \
	scripts/accel/settings.c \
	scripts/accel/settings.h \
	scripts/accel/step.c \
	scripts/accel/step.h \
	scripts/accel/token_output.c \
	scripts/accel/token_output.h \
	scripts/accel/topo_report.c \
	scripts/accel/topo_report.h
# The public header as a table, for libaccel(3).
nodist_accel_SOURCES = scripts/accel/api_table.c
CLEANFILES += scripts/accel/api_table.c
EXTRA_DIST += scripts/accel/header.awk
scripts/accel/api_table.c: runtime/accel.h scripts/accel/header.awk
	$(AM_V_GEN)$(MKDIR_P) scripts/accel && \
	$(AWK) -f $(srcdir)/scripts/accel/header.awk $(srcdir)/runtime/accel.h >$@.tmp && \
	mv $@.tmp $@
accel_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS) $(HWLOC_CFLAGS) \
	$(SLURM_CFLAGS) $(PMIX_CFLAGS)
accel_CPPFLAGS = $(AM_CPPFLAGS) -DPKGLIBDIR='"$(pkglibdir)"' -DDATADIR='"$(datadir)"' \
	-DPKGLIBEXECDIR='"$(pkglibexecdir)"'
# libaccel_core.la: of it the linker takes what needs neither BLAS nor PMIx nor UCX, so that
# the command starts at once.
accel_LDADD = libaccel_core.la libaccelckpt_core.la libaconfig.la libacommon.la \
	$(SMARTCOLS_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(HWLOC_LIBS) \
	$(libaccelckpt_core_libs) -lm -ldl

# HAVE_SLURM decides what it says, and comes from configure.
scripts/accel/accel-doctor_slurm.$(OBJEXT): Makefile

# One rank of `accel test`; links the whole runtime.
pkglibexec_PROGRAMS = accel-selftest
accel_selftest_SOURCES = \
	scripts/accel/cli.c \
	scripts/accel/cli.h \
	scripts/accel/selftest/collectives.c \
	scripts/accel/selftest/main.c \
	scripts/accel/selftest/map.c \
	scripts/accel/selftest/result.c \
	scripts/accel/selftest/selftest.h \
	scripts/accel/selftest/storage.c \
	scripts/accel/selftest/train.c
accel_selftest_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS)
accel_selftest_LDADD = libaccel_core.la libaccelckpt_core.la libaconfig.la \
	libacommon.la $(SMARTCOLS_LIBS) $(libaccel_core_libs) $(libaccelckpt_core_libs)

unit_tests += tests/unit/test_selftest
tests_unit_test_selftest_SOURCES = tests/unit/test_selftest.c scripts/accel/cli.c \
	scripts/accel/selftest/collectives.c scripts/accel/selftest/map.c \
	scripts/accel/selftest/result.c scripts/accel/selftest/storage.c \
	scripts/accel/selftest/train.c
tests_unit_test_selftest_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS)
tests_unit_test_selftest_LDADD = $(fork_ldadd) $(SMARTCOLS_LIBS)
tests_unit_test_selftest_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=comm_all_gather \
	-Wl,--wrap=comm_reduce_scatter -Wl,--wrap=comm_all_reduce \
	-Wl,--wrap=comm_broadcast -Wl,--wrap=accel_ckpt_read

# What the binary says about itself: manual pages, completion. The config's JSON Schema is
# kept in the tree as well, for editors that point at it there.
main_pages = scripts/accel/accel.1 scripts/accel/libaccel.3 \
	scripts/accel/accel-config.5 scripts/accel/accel.7
# A page for each function of accel.h, whose names make finds by itself.
api_functions := $(shell $(AWK) -v names=1 -f $(srcdir)/scripts/accel/header.awk \
	$(srcdir)/runtime/accel.h)
api_pages = $(api_functions:%=scripts/accel/man3/%.3)
nodist_man_MANS = $(main_pages) $(api_pages)
bashcompletiondir = $(datadir)/bash-completion/completions
nodist_bashcompletion_DATA = scripts/accel/completions/accel
dist_pkgdata_DATA += schema/accel.schema.json
CLEANFILES += $(nodist_man_MANS) $(nodist_bashcompletion_DATA)

$(main_pages): accel$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) scripts/accel && \
	./accel$(EXEEXT) man $$(echo $@ | sed 's/.*\.//') >$@.tmp && mv $@.tmp $@
scripts/accel/man3/stamp: accel$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) scripts/accel/man3 && rm -f scripts/accel/man3/*.3 && \
	for name in $(api_functions); do \
	    ./accel$(EXEEXT) man $$name >scripts/accel/man3/$$name.3 || exit 1; \
	done && touch $@
$(api_pages): scripts/accel/man3/stamp
CLEANFILES += scripts/accel/man3/stamp
scripts/accel/completions/accel: accel$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) scripts/accel/completions && \
	./accel$(EXEEXT) completion bash >$@.tmp && mv $@.tmp $@

shell_tests += tests/t/1000-config-messages.t tests/t/1010-config-cli.t \
	tests/t/1030-config-schema.t tests/t/1040-config-tables.t \
	tests/t/2000-topo-cli.t tests/t/1050-config-plan.t tests/t/1060-config-doctor.t \
	tests/t/8000-security-trust.t tests/t/8010-security-privilege.t \
	tests/t/8020-security-links.t tests/t/1080-config-command.t tests/t/1085-config-ask.t tests/t/1090-config-fsdp2.t \
	tests/t/1110-test-local.t tests/t/1111-test-slurm.t
unit_tests += tests/unit/test_step tests/unit/test_config_values
tests_unit_test_config_values_SOURCES = tests/unit/test_config_values.c \
	scripts/accel/config_values.c scripts/accel/config_values.h
tests_unit_test_config_values_CPPFLAGS = $(AM_CPPFLAGS) -DDATADIR='"$(datadir)"'
tests_unit_test_config_values_LDADD = $(unit_ldadd)
tests_unit_test_step_SOURCES = tests/unit/test_step.c scripts/accel/step.c \
	scripts/accel/step.h
tests_unit_test_step_LDADD = libtap.la -lm
EXTRA_DIST += tests/t/bad-configs.sh tests/data/config
unit_tests += tests/unit/test_launch
tests_unit_test_launch_SOURCES = tests/unit/test_launch.c
tests_unit_test_launch_LDADD = libtap.la libacommon.la $(JANSSON_LIBS) -lm
tests_unit_test_launch_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
EXTRA_DIST += tests/data/environ
