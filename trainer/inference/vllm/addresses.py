"""Addresses of vLLM servers as a setting writes them. Light: the supervisor imports it."""

from __future__ import annotations

from urllib.parse import urlsplit


def server_urls(text: str) -> list[str]:
    """`http://host:port[,…]` as a list. Raises ValueError that shows the right form."""
    urls = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a vLLM server; write http://host:8000[,http://other:8000]")
    if not urls:
        raise ValueError("no vLLM server is named; write http://host:8000[,http://other:8000]")
    return urls
