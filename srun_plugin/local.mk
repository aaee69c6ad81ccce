# srun_plugin/: accel_spank.so for Slurm, and the config parser it loads in srun, sbatch
# and salloc. Both are modules in $(pkglibdir), next to each other.
if HAVE_SLURM
pkglib_LTLIBRARIES = srun_plugin/accel_spank.la srun_plugin/accel_spank_config.la

srun_plugin_accel_spank_la_SOURCES = \
	srun_plugin/client.h \
	srun_plugin/options/cmdline.c \
	srun_plugin/options/cmdline.h \
	srun_plugin/config_api.h \
	srun_plugin/options/config_option.c \
	srun_plugin/options/plugin_options.h \
	srun_plugin/step/defaults.c \
	srun_plugin/step/defaults.h \
	srun_plugin/dispatch.c \
	srun_plugin/options/dry_run.c \
	srun_plugin/options/hints.c \
	srun_plugin/step/interrupt.c \
	srun_plugin/step/interrupt.h \
	srun_plugin/step/job_file.c \
	srun_plugin/step/job_file.h \
	srun_plugin/main_srun.c \
	srun_plugin/step/preemption_grace.c \
	srun_plugin/restart/outcome.c \
	srun_plugin/plugin.h \
	srun_plugin/plugstack.c \
	srun_plugin/plugstack.h \
	srun_plugin/remote.c \
	srun_plugin/remote_exit.c \
	srun_plugin/restart/rank_reports.c \
	srun_plugin/restart/requeued.c \
	srun_plugin/restart/restarts.c \
	srun_plugin/restart/restart.h \
	srun_plugin/restart/resubmit.c \
	srun_plugin/options/resume_option.c \
	srun_plugin/messages.c \
	srun_plugin/messages.h \
	srun_plugin/options/script.c \
	srun_plugin/options/script_text.c \
	srun_plugin/step/size.c \
	srun_plugin/step/plugin_step.h \
	srun_plugin/step/srun_step.c \
	srun_plugin/step/taskenv.c \
	srun_plugin/options/option_values.c \
	srun_plugin/options/option_values.h \
	srun_plugin/options/user_env.c \
	runtime/config/sources/carrier.c \
	runtime/config/python/environ_cores.c \
	runtime/config/python/environ_task.c \
	runtime/config/python/python_modules.c
srun_plugin_accel_spank_la_CFLAGS = $(ACCEL_BASE_CFLAGS) $(SLURM_CFLAGS)
srun_plugin_accel_spank_la_CPPFLAGS = $(AM_CPPFLAGS) -DPKGDATADIR='"$(pkgdatadir)"'
srun_plugin_accel_spank_la_LIBADD = libacommon.la
# Slurm's symbols come from the program that loads the plugin.
srun_plugin_accel_spank_la_LDFLAGS = -module -avoid-version -shared -Wl,-z,now \
	-Wl,-z,relro -Wl,--as-needed \
	-Wl,--version-script=$(top_srcdir)/srun_plugin/accel_spank.map
EXTRA_srun_plugin_accel_spank_la_DEPENDENCIES = srun_plugin/accel_spank.map

srun_plugin_accel_spank_config_la_SOURCES = srun_plugin/config_api.c srun_plugin/config_api.h
srun_plugin_accel_spank_config_la_CFLAGS = $(ACCEL_BASE_CFLAGS)
srun_plugin_accel_spank_config_la_LIBADD = libaconfig.la libacommon.la $(YAML_LIBS) -lm
srun_plugin_accel_spank_config_la_LDFLAGS = -module -avoid-version -shared -Wl,-z,now \
	-Wl,-z,relro -Wl,--as-needed -Wl,--no-undefined \
	-Wl,--version-script=$(top_srcdir)/srun_plugin/accel_spank_config.map
EXTRA_srun_plugin_accel_spank_config_la_DEPENDENCIES = \
	srun_plugin/accel_spank_config.map

# The line for the site's plugstack.conf, with the path of this installation.
plugstackdir = $(sysconfdir)/plugstack.conf.d
plugstack_DATA = srun_plugin/accel.conf
CLEANFILES += srun_plugin/accel.conf
# Root's slurmstepd will load the plugin: says what somebody else could change. No error, for a
# user may well install for himself. Not for a staged installation, whose owner is not the last.
install-exec-hook:
	@path=$(pkglibdir)/accel_spank.so; \
	while [ -z "$(DESTDIR)" ] && [ "$$path" ]; do \
	    bad=`find "$$path" -prune \( ! -user 0 -o -perm /022 ! -perm -1000 \)`; \
	    [ -z "$$bad" ] || echo "accel: name the plugin in plugstack.conf only when root owns" \
	        "$$bad and no others can write to it (chown root, chmod go-w)"; \
	    path=$${path%/*}; \
	done
srun_plugin/accel.conf: Makefile
	$(AM_V_GEN)$(MKDIR_P) srun_plugin && \
	    echo 'required $(pkglibdir)/accel_spank.so' >$@
endif

EXTRA_DIST += srun_plugin/accel_spank.map srun_plugin/accel_spank_config.map
shell_tests += tests/t/6000-slurm-config-refused.t tests/t/6010-slurm-step-env.t \
	tests/t/6020-slurm-step-size.t tests/t/6025-slurm-sbatch-size.t \
	tests/t/6030-slurm-preemption.t \
	tests/t/6040-slurm-valgrind.t tests/t/6050-slurm-resume.t \
	tests/t/6051-slurm-dry-run.t tests/t/6052-slurm-forms.t \
	tests/t/6055-slurm-matrix.t tests/t/6056-slurm-gpu-ids.t \
	tests/t/6060-slurm-malformed.t \
	tests/t/6065-slurm-stepd.t
shell_tests += tests/issues/0160-warning-harms-nobody.t
shell_tests += tests/issues/0161-requeue-exit.t
shell_tests += tests/issues/0357-site-locks.t tests/issues/0358-threads-granted.t tests/issues/0359-plugin-requests.t tests/issues/0360-install-owner.t
if HAVE_SLURM
# The plugin's files by themselves, with fake_plugin.c in place of Slurm and of messages.c.
plugin_fake = tests/unit/fake_plugin.c tests/unit/fake_plugin.h
plugin_cflags = $(AM_CFLAGS) $(SLURM_CFLAGS)
unit_tests += tests/unit/test_plugin_cmdline
tests_unit_test_plugin_cmdline_SOURCES = tests/unit/test_plugin_cmdline.c $(plugin_fake) \
	srun_plugin/options/cmdline.c srun_plugin/options/script.c
tests_unit_test_plugin_cmdline_CFLAGS = $(plugin_cflags)
tests_unit_test_plugin_cmdline_LDADD = libtap.la libacommon.la -lm -ldl
unit_tests += tests/unit/test_plugin_defaults
tests_unit_test_plugin_defaults_SOURCES = tests/unit/test_plugin_defaults.c $(plugin_fake) \
	srun_plugin/options/cmdline.c srun_plugin/step/defaults.c srun_plugin/options/user_env.c
tests_unit_test_plugin_defaults_CFLAGS = $(plugin_cflags)
tests_unit_test_plugin_defaults_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=cmdline_is_sbatch
tests_unit_test_plugin_defaults_LDADD = libtap.la libacommon.la -lm -ldl
unit_tests += tests/unit/test_plugin_size
tests_unit_test_plugin_size_SOURCES = tests/unit/test_plugin_size.c $(plugin_fake) \
	srun_plugin/options/cmdline.c srun_plugin/step/job_file.c srun_plugin/step/size.c srun_plugin/options/user_env.c
tests_unit_test_plugin_size_CFLAGS = $(plugin_cflags)
tests_unit_test_plugin_size_LDADD = libtap.la libacommon.la -lm -ldl
unit_tests += tests/unit/test_plugin_job
tests_unit_test_plugin_job_SOURCES = tests/unit/test_plugin_job.c $(plugin_fake) \
	srun_plugin/options/cmdline.c srun_plugin/step/defaults.c srun_plugin/step/preemption_grace.c \
	srun_plugin/restart/requeued.c srun_plugin/options/user_env.c
tests_unit_test_plugin_job_CFLAGS = $(plugin_cflags)
tests_unit_test_plugin_job_LDADD = libtap.la libacommon.la -lm -ldl
# The whole plugin, loaded into a stand-in for srun.
unit_tests += tests/unit/test_srun_end
tests_unit_test_srun_end_SOURCES = tests/unit/test_srun_end.c tests/unit/srun_rows.c \
	tests/unit/srun_rows.h
tests_unit_test_srun_end_CFLAGS = $(plugin_cflags)
tests_unit_test_srun_end_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_unit_test_srun_end_LDADD = libworld.la libtap.la libacommon.la -lm -ldl
EXTRA_tests_unit_test_srun_end_DEPENDENCIES = $(pkglib_LTLIBRARIES)
check_PROGRAMS += tests/helpers/fake_spank
tests_helpers_fake_spank_CFLAGS = $(AM_CFLAGS) $(SLURM_CFLAGS)
tests_helpers_fake_spank_LDFLAGS = $(AM_LDFLAGS) -export-dynamic -Wl,--no-as-needed
tests_helpers_fake_spank_LDADD = libaconfig.la libacommon.la $(YAML_LIBS) -lslurm -ldl
endif
unit_tests += tests/unit/test_script_text
tests_unit_test_script_text_SOURCES = tests/unit/test_script_text.c \
	srun_plugin/options/script_text.c srun_plugin/options/cmdline.h
check_PROGRAMS += tests/helpers/malformed tests/helpers/probe
EXTRA_DIST += tests/data/valgrind-slurm.supp tests/bench/plugin_overhead.sh doc/admin-plugin.md doc/configuration.md
shell_tests += tests/t/6200-env-accelerate.t tests/t/6210-env-port.t tests/t/6220-env-python.t tests/t/6225-env-reports.t tests/t/6226-env-ends.t
EXTRA_DIST += doc/python.md examples/hf_train.py examples/torch_train.py

# Longer than the suite has time for: all damaged configs through srun, 1000 steps.
check-launch: all
	$(MAKE) $(AM_MAKEFLAGS) check ACCEL_LONG_TESTS=1 TESTS='tests/t/6060-slurm-malformed.t tests/t/6065-slurm-stepd.t'
.PHONY: check-launch
