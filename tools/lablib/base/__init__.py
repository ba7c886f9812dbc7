# SPDX-License-Identifier: GPL-2.0
"""What everything stands on: messages, child processes, keyed artefacts, tallies, records."""
