# SPDX-License-Identifier: GPL-2.0
"""The base of all packages: messages, child processes, cached artefacts, tallies, records."""
