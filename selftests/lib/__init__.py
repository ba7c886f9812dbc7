# SPDX-License-Identifier: GPL-2.0
"""The framework of the system tests.

main     command line and selection of cases
runner   one process for each case: limits, judgement, cleaning up
case     a test case, and the context that its function gets
env      the environment: server, client module, sizes
server   a helper process in the server machine
mounts   mounting and unmounting
module   loading and unloading the transport
xprt     what the kernel shows of a connection, and how to break it
pattern  data that contain the number of their file and their offset
buffers  memory for direct I/O
workers  processes that load the mount during a case, and threads
kmsg     the kernel log
stacks   kernel stacks of tasks that hang
faults   faults on the server and on the network
hostile  a responder that misbehaves (runs in the server machine)
responder  requests to the hostile responder, and checks of the client's reaction
load     writers that record what was acknowledged, and the check of the server's files
rails    two RDMA devices, two addresses of the server, and the faults of a rail
serving  making this machine a server as well
showing  the common part of programs that demonstrate something
wait     waiting for conditions

torture  rounds of faults under load, and their record
matrix   the table of faults
bystanders  processes that work beside the load
"""

# The import adds lablib's directory to the search path, so this import must precede all imports of
# lablib.
from . import env  # noqa: F401
