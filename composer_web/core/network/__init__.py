"""HTTP at the edges of the product: client addresses, response times, compression, and requests to foreign URLs.

proxies.py      the client's address behind trusted proxies
latency.py      middleware that measures response times
compression.py  middleware that compresses text
safe_http.py    requests to a user's URL that cannot reach our own network
"""
