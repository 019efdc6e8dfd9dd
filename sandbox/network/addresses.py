"""Which addresses lead out and which lead in, judged after the look-up and never by the text of a name."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

EMBEDS_IPV4 = tuple(
    ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
)
"""IPv6 ranges that stand for an IPv4 address, maybe one of ours; Python calls most of them global."""


def embeds(address: Address) -> bool:
    return (
        isinstance(address, ipaddress.IPv6Address)
        and not (address.is_loopback or address.is_unspecified)
        and any(address in network for network in EMBEDS_IPV4)
    )


def plain(address: Address) -> Address:
    """The IPv4 address of an IPv4-mapped one."""
    return getattr(address, "ipv4_mapped", None) or address


def forbidden(address: Address) -> bool:
    """Where nothing of ours may go, whatever the installation allows: link-local, groups, nowhere, detours."""
    found = plain(address)
    broadcast = found == ipaddress.IPv4Address("255.255.255.255")
    return found.is_link_local or found.is_multicast or found.is_unspecified or broadcast or embeds(found)


def public(address: Address) -> bool:
    return plain(address).is_global and not forbidden(address)


def allowed(address: str, *, private: bool) -> bool:
    """Whether an address that a name was found at may be connected to: the one judgement for all that goes out."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return not forbidden(found) and (private or public(found))
