#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Prints the version of this source: that of the release, and between releases also how many commits
# followed and which is the last. This is the one place where the number stands.
release=0.2.0

here=$(dirname "$0")
# In a source package, the file version.package contains the version.
if [ -r "$here/version.package" ]; then
	exec cat "$here/version.package"
fi
git() {
	command git -c safe.directory='*' -C "$here" "$@" 2>/dev/null
}
if [ -e "$here/../.git" ] && commit=$(git rev-parse --short=12 HEAD); then
	since=$(git describe --tags --match "v$release" --abbrev=0 HEAD) || since=
	count=$(git rev-list --count ${since:+"$since.."}HEAD)
	dirty=$(git status --porcelain --untracked-files=no)
	if [ "$count" != 0 ] || [ -n "$dirty" ]; then
		release="$release+$count.g$commit${dirty:+.dirty}"
	fi
fi
echo "$release"
