# SPDX-License-Identifier: GPL-2.0
"""The lab. Each module implements one concept. The modules are grouped in packages ("rooms"). A
package uses only the packages that are listed after it.

cli         the command line
bench/      counts and times, ours beside the in-tree client
checks/     what judges: lint, machines, cable, faults; the commands of the same names
guest/      what runs inside the machines
machine/    machines: qemu (one), pair (both), session (a run); channel and wire (the control
            line); judge (consoles)
artefacts/  what is made: root, kernel, module; those of others (siw, programs)
base/       ui (messages), proc (child processes), cache (keyed artefacts), chroot, tally, rst
"""
