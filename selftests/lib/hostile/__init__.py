# SPDX-License-Identifier: GPL-2.0
"""A responder that misbehaves on command; it runs in the server machine.

proxy    the program: clients speak RPC-over-RDMA to it, it speaks TCP to knfsd
verbs    connections: queue pair, memory, connection manager (pyverbs)
message  transport messages taken apart and put together, apart from the module's code
rpc      what has to be known of RPC and NFS to place data directly
row      what a row of the tables is
tables   the misbehaviours, and how a client must react to each

It speaks both versions of RPC-over-RDMA: a call is answered in its own, and what a row changes is
the same in either.  What only version two has is in `version_two`.

The tables are read on both sides: the proxy looks up what to do, the test what to expect.
"""
