# Fuzz targets. `make check` runs each over its corpus and FUZZ_RUNS mutations; configured with
# --enable-fuzz CC=clang, libFuzzer drives them. `make fuzz FUZZ_RUNS=1000000` runs them all
# for long, best with --enable-sanitizer=address,undefined as well.
fuzz_targets = tests/fuzz/fuzz_config tests/fuzz/fuzz_sources tests/fuzz/fuzz_environ \
	tests/fuzz/fuzz_deepspeed tests/fuzz/fuzz_manifest tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_hf_config \
	tests/fuzz/fuzz_tokenizer tests/fuzz/fuzz_tokens
if LIBFUZZER
fuzz_driver =
fuzz_ldflags = $(AM_LDFLAGS) -fsanitize=fuzzer
else
fuzz_driver = tests/fuzz/replay.c
fuzz_ldflags = $(AM_LDFLAGS)
endif
check_PROGRAMS += $(fuzz_targets)
fuzz_config_libs = libtap.la libaconfig.la libacommon.la $(YAML_LIBS) -lm

tests_fuzz_fuzz_config_SOURCES = tests/fuzz/fuzz_config.c tests/fuzz/fuzz_check.h \
	$(fuzz_driver)
tests_fuzz_fuzz_config_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_config_LDADD = $(fuzz_config_libs)
tests_fuzz_fuzz_sources_SOURCES = tests/fuzz/fuzz_sources.c tests/fuzz/fuzz_check.h \
	$(fuzz_driver)
tests_fuzz_fuzz_sources_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_sources_LDADD = $(fuzz_config_libs)
tests_fuzz_fuzz_environ_SOURCES = tests/fuzz/fuzz_environ.c tests/fuzz/fuzz_check.h \
	$(fuzz_driver)
tests_fuzz_fuzz_environ_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_fuzz_fuzz_environ_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_environ_LDADD = $(fuzz_config_libs)
tests_fuzz_fuzz_deepspeed_SOURCES = tests/fuzz/fuzz_deepspeed.c tests/fuzz/fuzz_check.h \
	$(fuzz_driver)
tests_fuzz_fuzz_deepspeed_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_deepspeed_LDADD = $(fuzz_config_libs)
tests_fuzz_fuzz_manifest_SOURCES = tests/fuzz/fuzz_manifest.c $(fuzz_driver)
tests_fuzz_fuzz_manifest_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS)
tests_fuzz_fuzz_manifest_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_manifest_LDADD = libtap.la libaccelckpt_core.la libacommon.la \
	$(libaccelckpt_core_libs) -lm
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz_safetensors.c $(fuzz_driver)
tests_fuzz_fuzz_safetensors_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_safetensors_LDADD = libtap.la libaccelckpt_core.la libacommon.la \
	$(libaccelckpt_core_libs) -lm
tests_fuzz_fuzz_hf_config_SOURCES = tests/fuzz/fuzz_hf_config.c $(fuzz_driver)
tests_fuzz_fuzz_hf_config_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_tokenizer_SOURCES = tests/fuzz/fuzz_tokenizer.c $(fuzz_driver)
tests_fuzz_fuzz_tokenizer_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_tokens_SOURCES = tests/fuzz/fuzz_tokens.c $(fuzz_driver)
tests_fuzz_fuzz_tokens_LDFLAGS = $(fuzz_ldflags)

shell_tests += tests/t/1020-config-fuzz.t tests/t/1021-sources-fuzz.t \
	tests/t/1022-environ-fuzz.t tests/t/1023-deepspeed-fuzz.t \
	tests/t/5020-ckpt-fuzz.t tests/t/5021-safetensors-fuzz.t \
	tests/t/5022-hf-config-fuzz.t \
	tests/t/4310-tokenizer-fuzz.t tests/t/4320-tokens-fuzz.t
EXTRA_DIST += tests/fuzz/fuzz.sh tests/fuzz/replay.c tests/data/fuzz tests/data/manifest

FUZZ_RUNS = 1000000
FUZZ_SEED = 1
fuzz: $(fuzz_targets)
	@for target in $(fuzz_targets); do \
		echo "$$target: $(FUZZ_RUNS) runs"; \
		ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)' \
		FUZZ_RUNS='$(FUZZ_RUNS)' FUZZ_SEED='$(FUZZ_SEED)' \
		$(SHELL) '$(srcdir)/tests/fuzz/fuzz.sh' "$${target##*/fuzz_}" || exit 1; \
	done
.PHONY: fuzz

# What strangers' checkpoints and weights begin with, in ten times as many mutations.
fuzz-checkpoints:
	$(MAKE) fuzz fuzz_targets='tests/fuzz/fuzz_manifest tests/fuzz/fuzz_safetensors' \
	    FUZZ_RUNS=10000000
.PHONY: fuzz-checkpoints

# Sequences of calls of the public interface, with one rank and with two.
unit_tests += tests/fuzz/fuzz_calls
tests_fuzz_fuzz_calls_SOURCES = tests/fuzz/fuzz_calls.c tests/fuzz/calls_world.c \
	tests/fuzz/calls_world.h tests/fuzz/calls_run.c tests/fuzz/calls_models.c \
	tests/fuzz/calls_ops.c tests/fuzz/calls_objects.c tests/fuzz/calls_rules.c \
	tests/fuzz/calls_files.c tests/fuzz/calls_loaders.c tests/fuzz/calls_ranks.c \
	tests/fuzz/calls_state.c tests/fuzz/calls_track.c tests/fuzz/calls_units.c \
	tests/fuzz/calls_text.c

# The long forms: calls in any order, and functions of the program that fail on one rank. Worth
# most in a build with sanitizers.
check-calls: tests/fuzz/fuzz_calls tests/unit/test_one_fails
	@ACCEL_SRC='$(abs_top_srcdir)' ACCEL_BUILD='$(abs_top_builddir)'; \
	. '$(abs_top_srcdir)/tests/sanitizer.sh'; \
	./tests/fuzz/fuzz_calls -n $(or $(CALLS_RUNS),100000) -s $(or $(CALLS_SEED),1) && \
	./tests/unit/test_one_fails 100 $(or $(CALLS_SEED),1)
.PHONY: check-calls
