# weights/: other people's formats, in and out
libaccel_core_la_SOURCES += \
	runtime/weights/export.c \
	runtime/weights/gather_part.c \
	runtime/weights/huggingface/hf_config.c \
	runtime/weights/huggingface/hf_config.h \
	runtime/weights/huggingface/hf_json.c \
	runtime/weights/huggingface/hf_names.c \
	runtime/weights/huggingface/hf_of_model.c \
	runtime/weights/huggingface/hf_names.h \
	runtime/weights/huggingface/hf_presets.c \
	runtime/weights/huggingface/hf_write.c \
	runtime/weights/load.c \
	runtime/weights/weights.h
