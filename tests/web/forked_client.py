"""Stand-in for a process that is forked elsewhere (`forked.py`): gives it our standard streams, and ends with its status.

Standard library alone, and few modules of it: this starts in milliseconds.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["FORKED_SOCKET"])
    socket.send_fds(connection, [json.dumps({"argv": sys.argv[1:]}).encode()], [0, 1, 2])
    said = connection.makefile().readline()
status = int(said or 1)
os._exit(status if status >= 0 else 128 - status)
