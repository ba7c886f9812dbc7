# SPDX-License-Identifier: GPL-2.0
"""A responder that violates the protocol on request. The responder runs in the server machine.

proxy    the program: takes calls over RDMA, and forwards them to knfsd over TCP
verbs    connections: queue pair, memory, connection manager (pyverbs)
message  decodes and encodes transport messages, independently of the module's code
rpc      the parts of RPC and NFS that direct placement of data needs
row      the form of a row of the tables
tables   the misbehaviours, and how a client must react to each

The responder supports both versions of RPC-over-RDMA, and answers a call in the version of the
call. A row of a table can be used with both versions, and changes the same field in each of them.
Features that only version two has are in `version_two`.

The proxy and the test read the same tables: the proxy looks up what to do, and the test looks up
which reaction to expect.
"""
