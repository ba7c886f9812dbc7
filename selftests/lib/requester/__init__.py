# SPDX-License-Identifier: GPL-2.0
"""A requester that misbehaves; it runs in the client machine, against our server alone.

verbs    connections to a server (pyverbs)
calls    RPC calls of NFS, and what their replies say
row      what a row of the tables is
tables   the misbehaviours, and how the server must react to each

It is the other side of the hostile responder, whose messages and connections it uses.
"""
