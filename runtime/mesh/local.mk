# mesh/: the ranks as a grid, and their groups
libaccel_core_la_SOURCES += \
	runtime/mesh/mesh_open.c \
	runtime/mesh/mesh.h
unit_tests += tests/unit/test_mesh
