# The CLI: one binary, sub-commands in files of their own.
bin_PROGRAMS += accel
accel_SOURCES = \
	cli/man/areas.h \
	cli/cli.c \
	cli/cli.h \
	cli/config/cmd_check.c \
	cli/data/ckpt_diff.c \
	cli/data/ckpt_export.c \
	cli/data/ckpt_model.c \
	cli/data/ckpt_parts.c \
	cli/data/ckpt_progress.c \
	cli/data/ckpt_cmd.h \
	cli/data/ckpt_show.c \
	cli/data/ckpt_state.c \
	cli/data/ckpt_weights.c \
	cli/data/cmd_ckpt.c \
	cli/data/cmd_merge_weights.c \
	cli/man/cmd_completion.c \
	cli/config/cmd_config.c \
	cli/doctor/cmd_doctor.c \
	cli/doctor/cmd_env.c \
	cli/man/cmd_explain.c \
	cli/launch/cmd_launch.c \
	cli/man/cmd_man.c \
	cli/plan/cmd_plan.c \
	cli/config/cmd_schema.c \
	cli/selftest/cmd_test.c \
	cli/data/cmd_tokenize.c \
	cli/doctor/cmd_topo.c \
	cli/config/cmd_to_fsdp2.c \
	cli/commands.c \
	cli/config/config_ask.c \
	cli/config/config_make.c \
	cli/config/config_values.c \
	cli/config/config_values.h \
	cli/config/config_write.c \
	cli/doctor/doctor.h \
	cli/doctor/doctor_slurm.c \
	cli/config/json_schema.c \
	cli/config/json_schema.h \
	cli/launch/launch.h \
	cli/launch/launch_env.c \
	cli/launch/launch_flags.c \
	cli/launch/launch_fork.c \
	cli/launch/launch_mpirun.c \
	cli/main.c \
	cli/plan/plan_cmd.h \
	cli/plan/plan_compare.c \
	cli/plan/plan_model.c \
	cli/plan/plan_show.c \
	cli/output.c \
	cli/output.h \
	cli/own_program.c \
	cli/own_program.h \
	cli/config/settings.c \
	cli/config/settings.h \
	cli/data/token_output.c \
	cli/data/token_output.h \
	cli/doctor/topo_report.c \
	cli/doctor/topo_report.h \
	srun_plugin/plugstack.c \
	srun_plugin/plugstack.h
# The functions of the public headers and of accel_job.h, which make finds by itself: each has
# a page.
man_headers = runtime/accel.h runtime/accel_job.h $(public_headers:runtime/accel.h=)
api_functions := $(shell $(AWK) -v names=1 -f $(srcdir)/cli/man/header.awk \
	$(man_headers:%=$(srcdir)/%))
nodist_accel_SOURCES = cli/man/api_functions.c
CLEANFILES += $(nodist_accel_SOURCES)
cli/man/api_functions.c: $(man_headers) cli/man/header.awk
	$(AM_V_GEN)$(MKDIR_P) cli/man && \
	{ echo 'extern const char *const api_functions[];' && \
	echo 'const char *const api_functions[] = {' && \
	printf '    "%s",\n' $(api_functions) && echo '    0' && echo '};'; } >$@.tmp && mv $@.tmp $@
accel_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS) $(HWLOC_CFLAGS) \
	$(SLURM_CFLAGS) $(PMIX_CFLAGS)
accel_CPPFLAGS = $(AM_CPPFLAGS) -DPKGLIBDIR='"$(pkglibdir)"' -DDATADIR='"$(datadir)"' \
	-DPKGLIBEXECDIR='"$(pkglibexecdir)"' -DMANDIR='"$(mandir)"'
# Of the libraries the linker takes what needs neither PMIx nor UCX nor HDF5, so
# that the command starts at once.
accel_LDADD = libaccel_core.la libapreemption.la libaccelckpt_core.la libaconfig.la libacommon.la \
	$(SMARTCOLS_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(HWLOC_LIBS) \
	$(libaccelckpt_core_libs) -lm -ldl

# HAVE_SLURM decides what it says, and comes from configure.
cli/doctor/accel-doctor_slurm.$(OBJEXT): Makefile

# One rank of `accel test`; links the whole runtime.
pkglibexec_PROGRAMS = accel-selftest
accel_selftest_SOURCES = \
	cli/cli.c \
	cli/cli.h \
	cli/selftest/collectives.c \
	cli/selftest/selftest.c \
	cli/selftest/placement_map.c \
	cli/selftest/result.c \
	cli/selftest/selftest.h \
	cli/selftest/storage.c \
	cli/selftest/short_run.c
accel_selftest_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS)
accel_selftest_LDADD = libaccel_core.la libapreemption.la libaccelckpt_core.la libaconfig.la \
	libacommon.la $(SMARTCOLS_LIBS) $(libaccel_core_libs) $(libaccelckpt_core_libs)

# Writes checkpoints from other data; links the HDF5 library.
pkglibexec_PROGRAMS += accel-rewrite
accel_rewrite_SOURCES = \
	cli/cli.c \
	cli/cli.h \
	cli/data/ckpt_parts.c \
	cli/data/ckpt_progress.c \
	cli/data/ckpt_cmd.h \
	cli/data/rewrite_main.c
accel_rewrite_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS)
accel_rewrite_LDADD = libaccelckpt_core.la libacommon.la $(SMARTCOLS_LIBS) \
	$(libaccelckpt_core_libs)

# Verifies checkpoints; links the HDF5 library.
pkglibexec_PROGRAMS += accel-verify
accel_verify_SOURCES = \
	cli/cli.c \
	cli/cli.h \
	cli/data/ckpt_progress.c \
	cli/data/ckpt_cmd.h \
	cli/data/isolate.c \
	cli/data/isolate.h \
	cli/data/verify_main.c
accel_verify_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS)
accel_verify_LDADD = libaccelckpt_core.la libacommon.la $(SMARTCOLS_LIBS) \
	$(libaccelckpt_core_libs) -lm

unit_tests += tests/unit/test_ckpt_weights
tests_unit_test_ckpt_weights_SOURCES = tests/unit/test_ckpt_weights.c cli/data/ckpt_cmd.h \
	cli/data/ckpt_parts.c cli/data/ckpt_weights.c
tests_unit_test_ckpt_weights_LDADD = $(unit_ldadd) -lm

unit_tests += tests/unit/test_selftest
tests_unit_test_selftest_SOURCES = tests/unit/test_selftest.c cli/cli.c \
	cli/selftest/collectives.c cli/selftest/placement_map.c \
	cli/selftest/result.c cli/selftest/storage.c \
	cli/selftest/short_run.c
tests_unit_test_selftest_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS)
tests_unit_test_selftest_LDADD = $(unit_ldadd) $(SMARTCOLS_LIBS)
tests_unit_test_selftest_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=comm_all_gather \
	-Wl,--wrap=comm_reduce_scatter -Wl,--wrap=comm_all_reduce \
	-Wl,--wrap=comm_broadcast -Wl,--wrap=comm_barrier \
	-Wl,--wrap=accel_ckpt_read -Wl,--wrap=calloc

# What the binary says about itself: manual pages, completion, the config's JSON Schema. The
# examples point editors at the schema where it is made.
main_pages = cli/man/man1/accel.1 cli/man/man3/libaccel.3 \
	cli/man/man5/accel-config.5 cli/man/man7/accel.7
# A page for each function of accel.h.
api_pages = $(api_functions:%=cli/man/man3/%.3)
nodist_man_MANS = $(main_pages)
# by its own name: automake cannot tell the section of names that make finds
nodist_man3_MANS = $(api_pages)
bashcompletiondir = $(datadir)/bash-completion/completions
nodist_bashcompletion_DATA = cli/man/completions/accel
nodist_pkgdata_DATA += schema/accel.schema.json
# beside the examples as well, which name it as in the source
nobase_nodist_doc_DATA = schema/accel.schema.json
CLEANFILES += $(nodist_man_MANS) $(nodist_man3_MANS) $(nodist_bashcompletion_DATA) $(nodist_pkgdata_DATA)

# Prints the tables of the program for them: of the objects of accel, all but its main.
noinst_PROGRAMS += cli/man/tables
cli_man_tables_SOURCES = cli/man/tables.c
cli_man_tables_CFLAGS = $(accel_CFLAGS)
cli_man_tables_LDADD = $(filter-out cli/accel-main.$(OBJEXT),$(accel_OBJECTS)) $(accel_LDADD)
cli_man_tables_DEPENDENCIES = $(accel_OBJECTS) $(accel_DEPENDENCIES)
page_programs = \
	cli/man/tables.awk \
	cli/man/header.awk \
	cli/man/roff.awk \
	cli/man/completion.awk \
	cli/man/pages.awk
templates = \
	cli/man/accel.1.in \
	cli/man/accel.7.in \
	cli/man/accel-config.5.in \
	cli/man/completion.bash.in \
	cli/man/function.3.in \
	cli/man/libaccel.3.in
EXTRA_DIST += $(page_programs) $(templates)
cli/man/tables.txt: cli/man/tables$(EXEEXT)
	$(AM_V_GEN)./cli/man/tables$(EXEEXT) >$@.tmp && mv $@.tmp $@
cli/man/stamp: cli/man/tables.txt $(page_programs) $(man_headers) $(templates)
	$(AM_V_GEN)cd cli/man && rm -rf man[1-9] completions && \
	$(MKDIR_P) man1 man3 man5 man7 completions && cd ../.. && \
	LC_ALL=C $(AWK) -F '\t' -v dir=cli/man $(page_programs:%=-f $(srcdir)/%) cli/man/tables.txt \
	    $(man_headers:%=$(srcdir)/%) $(templates:%=$(srcdir)/%) && touch $@
$(main_pages) $(api_pages) $(nodist_bashcompletion_DATA): cli/man/stamp
CLEANFILES += cli/man/stamp cli/man/tables.txt
schema/accel.schema.json: accel$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) schema && ./accel$(EXEEXT) schema >$@.tmp && mv $@.tmp $@

shell_tests += tests/issues/0377-ckpt-out-dir.t tests/t/1000-config-messages.t tests/t/1010-config-cli.t \
	tests/t/1030-config-schema.t tests/t/1040-config-tables.t \
	tests/t/2000-topo-cli.t tests/t/1050-config-plan.t tests/t/1060-config-doctor.t \
	tests/t/8000-security-trust.t tests/t/8010-security-privilege.t \
	tests/t/8020-security-links.t tests/t/8030-written-files.t tests/t/1080-config-command.t tests/t/1085-config-ask.t tests/t/1090-config-fsdp2.t \
	tests/t/1110-test-local.t tests/t/1111-test-slurm.t \
	tests/t/1125-sessions.t tests/t/1130-no-memory.t \
	tests/t/1135-few-descriptors.t
unit_tests += tests/unit/test_config_values
tests_unit_test_config_values_SOURCES = tests/unit/test_config_values.c \
	cli/config/config_values.c cli/config/config_values.h
tests_unit_test_config_values_CPPFLAGS = $(AM_CPPFLAGS) -DDATADIR='"$(datadir)"'
EXTRA_DIST += tests/t/bad-configs.sh tests/data/config tests/data/sessions
check_LTLIBRARIES += tests/faults/nomem.la
tests_faults_nomem_la_SOURCES = tests/faults/nomem.c
tests_faults_nomem_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_faults_nomem_la_LDFLAGS = -module -avoid-version -rpath /nowhere
tests_faults_nomem_la_LIBADD = -ldl
unit_tests += tests/unit/test_launch
tests_unit_test_launch_LDADD = libtap.la libacommon.la $(JANSSON_LIBS) -lm
tests_unit_test_launch_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
EXTRA_DIST += tests/data/environ
