# models/: the model families, with Hugging Face's names and config.json
libaccel_core_la_SOURCES += \
	runtime/models/bert.c \
	runtime/models/blocks.c \
	runtime/models/blocks.h \
	runtime/models/causal.h \
	runtime/models/decoder.c \
	runtime/models/decoder.h \
	runtime/models/family.c \
	runtime/models/family.h \
	runtime/models/gpt2.c \
	runtime/models/huggingface/hf_config.c \
	runtime/models/huggingface/hf_config.h \
	runtime/models/huggingface/hf_json.c \
	runtime/models/huggingface/hf_json.h \
	runtime/models/huggingface/hf_names.c \
	runtime/models/huggingface/hf_names.h \
	runtime/models/huggingface/hf_write.c \
	runtime/models/layers.c \
	runtime/models/layers.h \
	runtime/models/llama.c \
	runtime/models/model_config.c \
	runtime/models/model_config.h
