"""A security key in software: what a browser and a key together answer to the options of a page (WebAuthn level 2)."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData

USED = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV


@dataclass
class SoftKey:
    """One credential, made by `register`; `origin` is what the browser says it is at."""

    origin: str = "http://localhost"
    secret: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    uses: int = 0

    def register(self, options: dict[str, Any]) -> str:
        """The answer to `navigator.credentials.create`, as JSON."""
        given = options["creation_options"]["publicKey"]
        public = AttestedCredentialData.create(
            Aaguid.NONE, self.id, ES256.from_cryptography_key(self.secret.public_key())
        )
        data = AuthenticatorData.create(_digest(given["rp"]["id"]), USED | AuthenticatorData.FLAG.AT, 0, public)
        client = self._client("webauthn.create", given["challenge"])
        response = {"attestationObject": websafe_encode(AttestationObject.create("none", data, {}))}
        return self._answer({**response, "clientDataJSON": websafe_encode(client)})

    def use(self, options: dict[str, Any]) -> str:
        """The answer to `navigator.credentials.get`, as JSON; a real browser refuses what is not on the list, this signs."""
        given = options["request_options"]["publicKey"]
        self.uses += 1
        data = AuthenticatorData.create(_digest(given["rpId"]), USED, self.uses)
        client = self._client("webauthn.get", given["challenge"])
        signature = self.secret.sign(bytes(data) + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        response = {"authenticatorData": websafe_encode(data), "signature": websafe_encode(signature)}
        return self._answer({**response, "clientDataJSON": websafe_encode(client), "userHandle": None})

    def _client(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _answer(self, response: dict[str, Any]) -> str:
        name = websafe_encode(self.id)
        whole = {"id": name, "rawId": name, "type": "public-key", "response": response, "clientExtensionResults": {}}
        return json.dumps(whole)


def _digest(host: str) -> bytes:
    return hashlib.sha256(host.encode()).digest()
