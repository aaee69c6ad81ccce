# libaccel: convenience libraries per use, then the shared library.
#   libacommon.la  errors and strings (everybody)
#   libaconfig.la  config + plan: libc and libyaml only, so that the plugin can carry it
#   libapreemption.la  stops and restarts: libc only, so that libacceljob can carry it
#   libaccel_core.la  all the rest; unit tests link it to reach hidden symbols
noinst_LTLIBRARIES += libacommon.la libaconfig.la libaccel_core.la
# The public headers; accel.h includes the others.
public_headers = runtime/accel.h runtime/accel_ops.h runtime/accel_models.h \
	runtime/accel_loaders.h runtime/accel_objects.h runtime/accel_ranks.h \
	runtime/accel_state.h runtime/accel_text.h runtime/accel_track.h runtime/accel_units.h
include_HEADERS += $(public_headers)

libacommon_la_SOURCES =
libacommon_la_CFLAGS = $(AM_CFLAGS) $(XXHASH_CFLAGS) $(RANDOM123_CFLAGS)
libaconfig_la_SOURCES =
libaconfig_la_CFLAGS = $(AM_CFLAGS) $(YAML_CFLAGS)
libaconfig_la_CPPFLAGS = $(AM_CPPFLAGS) -DPKGDATADIR='"$(pkgdatadir)"'
libaccel_core_la_SOURCES =
libaccel_core_la_CPPFLAGS = $(AM_CPPFLAGS) -DPKGLIBDIR='"$(pkglibdir)"'
# no-math-errno: nobody reads errno after sqrtf, and loops that must set it stay scalar.
libaccel_core_la_CFLAGS = $(AM_CFLAGS) -fno-math-errno $(PMIX_CFLAGS) $(UCX_CFLAGS) \
	$(HWLOC_CFLAGS) $(XXHASH_CFLAGS) $(JANSSON_CFLAGS) $(RANDOM123_CFLAGS)

include runtime/common/local.mk
include runtime/numbers/local.mk
include runtime/config/local.mk
include runtime/precision/local.mk
include runtime/plan/local.mk
include runtime/bootstrap/local.mk
include runtime/topology/local.mk
include runtime/comm/local.mk
include runtime/tensor/local.mk
include runtime/backend/local.mk
include runtime/ops/local.mk
include runtime/nn/local.mk
include runtime/models/local.mk
include runtime/optim/local.mk
include runtime/powersgd/local.mk
include runtime/shard/local.mk
include runtime/data/local.mk
include runtime/observe/local.mk
include runtime/track/local.mk
include runtime/preemption/local.mk
include runtime/job/local.mk
include runtime/handle/local.mk
include runtime/place/local.mk
include runtime/ranks/local.mk
include runtime/loader/local.mk
include runtime/training/local.mk
include runtime/weights/local.mk
include runtime/text/local.mk
include runtime/state/local.mk
include runtime/loop/local.mk
include runtime/mesh/local.mk
include runtime/run/local.mk

lib_LTLIBRARIES += libaccel.la
libaccel_la_SOURCES =
EXTRA_libaccel_la_DEPENDENCIES = runtime/libaccel.map
libaccel_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
	-Wl,--version-script=$(top_srcdir)/runtime/libaccel.map
libaccel_core_libs = $(PMIX_LIBS) $(UCX_LIBS) $(HWLOC_LIBS) $(XXHASH_LIBS) \
	$(JANSSON_LIBS) $(YAML_LIBS) -lm -ldl -lpthread
libaccel_la_LIBADD = libaccel_core.la libapreemption.la libaconfig.la libacommon.la libaccelckpt.la \
	$(libaccel_core_libs)
EXTRA_DIST += runtime/libaccel.map

# The table of the public interface: structs with offsets and sizes, constants, functions.
abi_headers = $(public_headers) runtime/accel_job.h checkpoint/accel_ckpt.h \
	runtime/weights/safetensors/accel_safetensors.h
noinst_PROGRAMS += abi_table
nodist_abi_table_SOURCES = abi_table.c
abi_table_LDADD =
nodist_pkgdata_DATA = abi.json
CLEANFILES += abi_table.c abi.json
EXTRA_DIST += runtime/abi_table.awk
abi_table.c: $(abi_headers) runtime/abi_table.awk
	$(AM_V_GEN)$(AWK) -f $(srcdir)/runtime/abi_table.awk $(abi_headers:%=$(srcdir)/%) >$@.tmp && \
	mv $@.tmp $@
abi.json: abi_table$(EXEEXT)
	$(AM_V_GEN)./abi_table$(EXEEXT) >$@.tmp && mv $@.tmp $@
# What the first release promises: its headers and its table. Refused once it is out.
update-abi: abi.json
	@! git -C $(srcdir) describe --tags --match 'v*' >/dev/null 2>&1 || { \
	    echo "a release is out: tests/data/abi/1 is what it promised" >&2; exit 1; }
	$(MKDIR_P) $(srcdir)/tests/data/abi/1
	cp abi.json $(abi_headers:%=$(srcdir)/%) $(srcdir)/tests/data/abi/1
.PHONY: update-abi
