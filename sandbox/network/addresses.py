"""Classify addresses as public or internal, after the DNS lookup and never by the text of a name.

A public address is reachable by anybody on the internet and maps to no other address. For IPv6 that is the allocated
part (2000::/3); in both families it excludes what the IANA special-purpose registries reserve. The tables follow the
registries of 2025; `ipaddress` has fewer entries and treats some translations of private addresses as global.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

SPECIAL_IPV4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
GIVEN_OUT_IPV6 = ipaddress.IPv6Network("2000::/3")
SPECIAL_IPV6 = tuple(
    ipaddress.IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3ffe::/16", "3fff::/20")
)
"""Reserved parts of `GIVEN_OUT_IPV6`: protocol assignments, documentation, 6to4, AS112, the 6bone."""
EMBEDS_IPV4 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        *("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),  # compatible, translated, NAT64
        *("2002::/16", "2001::/32"),  # 6to4, Teredo
    )
)
"""IPv6 ranges that stand for an IPv4 address, maybe one of ours."""
ISATAP = 0x5EFE
_ISATAP_MASK = 0xFCFFFFFF
"""Interface identifiers ::5efe:a.b.c.d, with the bits for universal and group addresses as they may be."""
NOWHERE = ipaddress.IPv4Network("0.0.0.0/8")


def embeds(address: Address) -> bool:
    """Whether an IPv6 address stands for an IPv4 one, by its range or by its interface identifier."""
    if not isinstance(address, ipaddress.IPv6Address) or address.is_loopback or address.is_unspecified:
        return False
    isatap = (int(address) >> 32) & _ISATAP_MASK == ISATAP
    return isatap or any(address in network for network in EMBEDS_IPV4)


def plain(address: Address) -> Address:
    """The IPv4 address of an IPv4-mapped one."""
    return getattr(address, "ipv4_mapped", None) or address


def forbidden(address: Address) -> bool:
    """Where nothing of ours may go, whatever the installation allows: link-local, groups, nowhere, detours."""
    found = plain(address)
    nowhere = found.is_unspecified or found == ipaddress.IPv4Address("255.255.255.255") or found in NOWHERE
    return found.is_link_local or found.is_multicast or nowhere or embeds(found)


def public(address: Address) -> bool:
    """Whether anybody on the internet may be reached there, and nobody on this side of it."""
    found = plain(address)
    if isinstance(found, ipaddress.IPv4Address):
        special = any(found in network for network in SPECIAL_IPV4)
    else:
        special = found not in GIVEN_OUT_IPV6 or any(found in network for network in SPECIAL_IPV6)
    return not special and found.is_global and not forbidden(found)


def allowed(address: str, *, private: bool) -> bool:
    """Whether an address that a name was found at may be connected to: the one judgement for all that goes out."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return not forbidden(found) and (private or public(found))
