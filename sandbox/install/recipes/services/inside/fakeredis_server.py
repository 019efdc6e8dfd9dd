# A Redis that is Python, for a machine that has none: fakeredis's own TCP server.
# mypy: ignore-errors
import sys

from fakeredis import TcpFakeServer

TcpFakeServer.allow_reuse_address = True
TcpFakeServer(("127.0.0.1", int(sys.argv[1])), server_type="redis").serve_forever()
