# SPDX-License-Identifier: GPL-2.0
"""Counts events per RPC for each client that the command line names. Prints JSON on standard
output.

    count_clients.py OPTIONS CLIENT...
"""

import json
import sys

from . import count, transport

result = {}
with count.Probe() as probe:
    for client in sys.argv[2:]:
        with transport.loaded(client), transport.mounted(sys.argv[1]) as mount:
            result[client] = count.measure(mount, probe, deep=True)
print(json.dumps(result))
