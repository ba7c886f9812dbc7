# SPDX-License-Identifier: GPL-2.0
#
# Collects the Rust examples in documentation comments, each as a function of its own.
# Usage: awk -v src=DIRECTORY -f examples.awk FILES
#
# As in rustdoc, an example is a block between lines of three backquotes, a line that begins
# with "# " is not shown but belongs to it, and one that uses "?" ends with
# "# Ok::<(), Error>(())".  A block with another word after the backquotes is no example.

BEGIN {
	print "// SPDX-License-Identifier: GPL-2.0"
	print ""
	print "//! The examples in the documentation of the crates."
	print ""
	print "#![allow(warnings, clippy::all, clippy::undocumented_unsafe_blocks)]"
	print ""
	print "use xprtrdma_base::__LOG_PREFIX;"
}

FNR == 1 {
	name = FILENAME
	sub("^" src "/", "", name)
	inside = 0
}

!/^[ \t]*\/\/[\/!]/ { next }

{
	line = $0
	sub(/^[ \t]*\/\/[\/!] ?/, "", line)
}

line ~ /^```/ {
	if (inside == 0) {
		inside = line ~ /^```(rust)?$/ ? 2 : 1
		if (inside == 2) {
			printf "\n// %s:%d\nfn example_%d() {\n\tlet _ = || {\n", name, FNR, ++number
		}
	} else {
		if (inside == 2) {
			print "\t};\n}"
		}
		inside = 0
	}
	next
}

inside == 2 {
	sub(/^# /, "", line)
	print line == "#" ? "" : "\t\t" line
}
