#!/bin/sh
# Makes configure from configure.ac. Needed in a git checkout only; tarballs carry it.
set -e
cd "$(dirname "$0")"
exec autoreconf --install --force
