# SPDX-License-Identifier: GPL-2.0
"""The harness of the system tests.

main     command line and selection of cases
runner   one process per case: limits, judgement, cleaning up
case     what a test function gets to work with
env      what the surroundings say: server, client module, sizes
server   a helper process in the server machine
mounts   mounting and unmounting
module   loading and unloading the transport
xprt     what the kernel shows of a connection, and forcing it down
pattern  data that says where and when it was written
buffers  memory for direct I/O
workers  processes that load the mount while the test does something else, and threads
kmsg     the kernel log
stacks   where tasks hang
faults   trouble made on the server and on the wire
hostile  a responder that misbehaves (runs in the server machine)
responder  orders to it, and the judgement of what follows
load     writers that know what they were told, and the check of it
rails    two devices, two addresses of the server, and what is wrong with one
serving  this machine as a server, too
showing  what programs that show something have in common
wait     waiting for conditions

torture  rounds of faults under load, their record
matrix   the table of faults
bystanders  processes beside that load
"""

# The import adds lablib's directory to the search path, so it precedes all imports of lablib.
from . import env  # noqa: F401
