# SPDX-License-Identifier: GPL-2.0
"""The lab, one concept per module.

Foundations:   ui (messages), proc (child processes), cache (keyed artefacts)
Artefacts:     archive, root (user land and tools), kernel, initramfs, module
Machines:      accel, qemu (one machine), channel (its control line),
               pair (server and client together), guest/ (what runs inside)
Judgement:     judge (consoles, left-overs), ktap (test output)
Pages:         rst (tables)
Commands:      cli and the modules it names: check, programs and beside (those of others), ...
"""
