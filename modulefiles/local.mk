# Modulefiles. The Lua one (Lmod) and the Tcl one (Environment Modules) have trees of their
# own: in a common one Lmod would see both as the same version.
luadir = $(datadir)/modulefiles
tcldir = $(datadir)/modulefiles-tcl
luamoduledir = $(luadir)/accel
tclmoduledir = $(tcldir)/accel
nodist_luamodule_DATA = modulefiles/lua/$(PACKAGE_VERSION).lua
nodist_tclmodule_DATA = modulefiles/tcl/$(PACKAGE_VERSION)
EXTRA_DIST += modulefiles/accel.lua.in modulefiles/accel.tcl.in
CLEANFILES += $(nodist_luamodule_DATA) $(nodist_tclmodule_DATA)

modulefile_edit = $(SED) -e 's|@VERSION[@]|$(PACKAGE_VERSION)|g' -e 's|@prefix[@]|$(prefix)|g' \
	-e 's|@luadir[@]|$(luadir)|g' -e 's|@tcldir[@]|$(tcldir)|g' \
	-e 's|@bindir[@]|$(bindir)|g' -e 's|@libdir[@]|$(libdir)|g' \
	-e 's|@includedir[@]|$(includedir)|g' -e 's|@mandir[@]|$(mandir)|g' \
	-e 's|@docdir[@]|$(docdir)|g' -e 's|@pkgdatadir[@]|$(pkgdatadir)|g' \
	-e 's|@pkgconfigdir[@]|$(pkgconfigdir)|g'

modulefiles/lua/$(PACKAGE_VERSION).lua: modulefiles/accel.lua.in Makefile
	$(AM_V_GEN)$(MKDIR_P) modulefiles/lua && \
	$(modulefile_edit) $(srcdir)/modulefiles/accel.lua.in >$@.tmp && mv $@.tmp $@
modulefiles/tcl/$(PACKAGE_VERSION): modulefiles/accel.tcl.in Makefile
	$(AM_V_GEN)$(MKDIR_P) modulefiles/tcl && \
	$(modulefile_edit) $(srcdir)/modulefiles/accel.tcl.in >$@.tmp && mv $@.tmp $@

# Where the modules are, said once at the end of an installation into the real prefix.
install-data-hook:
	@test -n "$(DESTDIR)" || printf '%s\n' \
	    "Lmod:                module use $(luadir) && module load accel" \
	    "Environment Modules: module use $(tcldir) && module load accel"
