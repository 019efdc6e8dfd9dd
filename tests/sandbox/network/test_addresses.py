"""No address of a reserved or translated range is public, wherever in the range it lies and whatever it carries."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.network import addresses

# IANA IPv4 and IPv6 Special-Purpose Address Registries, with the deprecated ranges that kernels still route.
RESERVED = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.0.0/29", "192.0.0.8/32", "192.0.0.170/31", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24"),
    *("192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24"),
    *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
    *("::1/128", "::/128", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
    *("2001::/23", "2001::/32", "2001:1::1/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28"),
    *("2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16"),
    *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "3ffe::/16", "::/96", "4000::/3", "e000::/4"),
)
PRIVATE_V4 = st.sampled_from(("127.0.0.1", "10.0.0.5", "169.254.169.254", "192.168.1.1", "172.16.0.9"))
CARRIERS = (
    *("::{}", "::ffff:{}", "::ffff:0:{}", "64:ff9b::{}", "64:ff9b:1::{}", "2606:4700::5efe:{}", "fe80::5efe:{}"),
    *("2606:4700::200:5efe:{}", "2a00:1450:1:2:300:5efe:{}", "2a00:1450:1:2:100:5efe:{}"),
)


@st.composite
def reserved(draw: st.DrawFn) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    network = ipaddress.ip_network(draw(st.sampled_from(RESERVED)))
    edges = st.sampled_from((0, network.num_addresses - 1))
    return network[draw(edges | st.integers(0, network.num_addresses - 1))]


@given(reserved())
def test_nothing_reserved_is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert not addresses.public(address)
    if isinstance(address, ipaddress.IPv4Address):
        assert not addresses.public(ipaddress.IPv6Address(f"::ffff:{address}"))


@given(PRIVATE_V4 | st.ip_addresses(v=4).map(str), st.sampled_from(CARRIERS))
def test_an_address_inside_another_never_leads_in(inner: str, carrier: str) -> None:
    address = ipaddress.IPv6Address(carrier.format(inner))
    mapped = address.ipv4_mapped
    assert addresses.public(address) == (mapped is not None and addresses.public(mapped))
    assert mapped or address.is_loopback or not addresses.allowed(str(address), private=True)


@given(PRIVATE_V4)
def test_six_to_four_and_teredo_never_lead_in(inner: str) -> None:
    number = int(ipaddress.IPv4Address(inner))
    six_to_four = ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1)
    teredo = ipaddress.IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF))
    assert not any(addresses.allowed(str(address), private=True) for address in (six_to_four, teredo))


@pytest.mark.parametrize(
    "address", ["151.101.0.223", "8.8.8.8", "2606:4700::6810:84e5", "2a04:4e42::223", "2400:cb00::1"]
)
def test_the_internet_stays_reachable(address: str) -> None:
    assert addresses.public(ipaddress.ip_address(address)) and addresses.allowed(address, private=False)
