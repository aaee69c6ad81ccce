# data/
libaccel_core_la_SOURCES += \
	runtime/data/added_tokens.c \
	runtime/data/bpe.c \
	runtime/data/bpe_long.c \
	runtime/data/data.h \
	runtime/data/data_impl.h \
	runtime/data/dataset.c \
	runtime/data/fields.c \
	runtime/data/host_batch.c \
	runtime/data/host_batch.h \
	runtime/data/iterable.c \
	runtime/data/pretokenize.c \
	runtime/data/sample_order.c \
	runtime/data/token_file.c \
	runtime/data/token_file.h \
	runtime/data/token_read.c \
	runtime/data/tokenizer.c \
	runtime/data/tokenizer.h \
	runtime/data/tokenizer_dir.c \
	runtime/data/tokenizer_files.c \
	runtime/data/tokenizer_impl.h \
	runtime/data/tokenizer_json.c \
	runtime/data/tokenizer_json.h \
	runtime/data/tokenizer_model.c \
	runtime/data/unicode.c \
	runtime/data/unicode.h \
	runtime/data/unicode_table.h
EXTRA_DIST += runtime/data/unicode_table.py
unit_tests += tests/unit/test_data tests/unit/test_tokenizer
tests_unit_test_tokenizer_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
shell_tests += tests/t/4300-data-tokenize.t tests/issues/0366-text-for-tokens.t \
	tests/issues/0367-doc-commands.t
EXTRA_DIST += tests/bench/tokenizer_speed.py tests/data/tokenizer doc/tokens.md
