# SPDX-License-Identifier: GPL-2.0
"""The artefacts: root file system, kernels, the module, and programs for tests."""
