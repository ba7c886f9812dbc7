# SPDX-License-Identifier: GPL-2.0
"""A requester that violates the protocol. The requester runs in the client machine, and is used
only with our server.

verbs    connections to a server (pyverbs)
calls    RPC calls of NFS, and the meaning of their replies
gss      calls that Kerberos protects
session  sessions of NFSv4.1, and callbacks of the server
row      the form of a row of the tables
tables   the misbehaviours, and how the server must react to each

The requester is the counterpart of the hostile responder, and uses the responder's classes for
messages and connections.
"""
