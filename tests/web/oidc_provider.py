"""A small OpenID Connect provider on the loopback: authorization code with PKCE, signed tokens, each code once.

It has no log-in page of its own: `Provider.person` is who sits at the browser.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "opencomposer", "a-secret-of-the-client"


class Provider:
    """What is issued, and to whom; `wrong` replaces claims of the next tokens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.person: dict[str, Any] = {}
        self.wrong: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes with a code."""
        assert query["client_id"] == CLIENT_ID
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str]) -> dict[str, Any]:
        """Tokens for a code. Raises KeyError or AssertionError for what is not right."""
        query = self.codes.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == query["code_challenge"]
        assert (form["client_id"], form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
        assert form["redirect_uri"] == query["redirect_uri"]
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 600, **self.person, **self.wrong}
        access = secrets.token_urlsafe(16)
        self.tokens[access] = self.person
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": 600,
            "id_token": jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "one"}),
        }


@contextmanager
def running() -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/.well-known/openid-configuration":
                self.answer(200, provider.configuration())
            elif parts.path == "/authorize":
                self.send_response(302)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.send_header("Location", provider.authorize(query))
                self.end_headers()
            elif parts.path == "/userinfo":
                person = provider.tokens.get(self.headers["Authorization"].removeprefix("Bearer "))
                self.answer(200 if person else 401, person or {})
            elif parts.path == "/jwks":
                key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(provider.key.public_key()))
                self.answer(200, {"keys": [{**key, "kid": "one", "alg": "RS256", "use": "sig"}]})
            else:
                self.answer(404, {})

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(text).items()}
            try:
                self.answer(200, provider.exchange(form))
            except (KeyError, AssertionError):
                self.answer(400, {"error": "invalid_grant"})

        def answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
