# SPDX-License-Identifier: GPL-2.0
"""The lab. Each module implements one concept. The modules are grouped in packages ("rooms"). A
package uses only the packages that are listed after it.

cli         the command line
bench/      counts and times of our client, beside those of the in-tree client
checks/     the checks (lint, machines, cable, faults) and the commands of the same names
guest/      programs that run inside the machines
machine/    machines: qemu (one), pair (both), session (a run); channel and wire (the control
            line); judge (consoles)
artefacts/  the artefacts that the lab builds: root, kernel, module, siw, programs of other projects
base/       ui (messages), proc (child processes), cache (keyed artefacts), chroot, tally, rst
"""
