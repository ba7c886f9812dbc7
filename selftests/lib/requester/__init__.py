# SPDX-License-Identifier: GPL-2.0
"""A requester that misbehaves; it runs in the client machine, against our server only.

verbs    connections to a server (pyverbs)
calls    RPC calls of NFS, and the meaning of their replies
gss      calls that Kerberos protects
session  sessions of NFSv4.1, and callbacks of the server
row      the form of a row of the tables
tables   the misbehaviours, and how the server must react to each

It is the counterpart of the hostile responder, and uses that responder's messages and connections.
"""
