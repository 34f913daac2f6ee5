"""CEL functions of URLs, addresses and networks."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from typing import Final
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from opsdk.testing.apiserver._cel_function import Function, FunctionError, Opaque, member, plain

__all__ = ["NETWORK", "uri_fault"]

_PATH_SAFE: Final = "/$&+,;=:@!'()*[]-._~%"


# URLs


def uri_fault(text: str) -> str | None:
    """What keeps a text from being an absolute URI or path; None where it is one."""
    if not text:
        return "empty url"
    if re.search(r"[\x00-\x1f\x7f]", text):
        return "invalid control character in URL"
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return "invalid URL escape"
    if text.startswith(":"):
        return "missing protocol scheme"
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if scheme is None and not text.startswith("/") and text != "*":
        return "invalid URI for request"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return str(error)
    if re.search(r"[\s<>\"\\^`{|}]", parts.netloc) or (parts.netloc.endswith(":x") and port is None):
        return "invalid character in host name"
    return None


def _url(text: str) -> Opaque:
    fault = uri_fault(text)
    if fault is not None:
        raise FunctionError(f'URL parse error during conversion from string: parse "{text}": {fault}')
    return Opaque("url", text)


def _parts(url: Opaque) -> SplitResult:
    return urlsplit(url.text)


def _host(url: Opaque) -> str:
    return _parts(url).netloc.rpartition("@")[2]


def _hostname(url: Opaque) -> str:
    host = _host(url)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: Opaque) -> str:
    found = re.search(r":(\d*)$", _host(url))
    return found[1] if found else ""


def _query(url: Opaque) -> dict[str, list[str]]:
    return parse_qs(_parts(url).query, keep_blank_values=True)


# Addresses and networks


def _parse_ip(text: str) -> IPv4Address | IPv6Address:
    if "%" in text:
        raise FunctionError(f'IP address "{text}" with zone value is not allowed')
    try:
        found = ip_address(text)
    except ValueError as error:
        raise FunctionError(f'IP Address "{text}" parse error during conversion from string: {error}') from error
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        raise FunctionError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return found


def _accepts(text: str) -> bool:
    try:
        _parse_ip(text)
    except FunctionError:
        return False
    return True


def _ip(text: str) -> Opaque:
    return Opaque("ip", str(_parse_ip(text)))


def _of(ip: Opaque) -> IPv4Address | IPv6Address:
    return ip_address(ip.text)


def _is_global(ip: Opaque) -> bool:
    address = _of(ip)
    broadcast = address == IPv4Address("255.255.255.255")
    return not (
        address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local or broadcast
    )


def _link_local_multicast(ip: Opaque) -> bool:
    address = _of(ip)
    if isinstance(address, IPv4Address):
        return address in ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


def _cidr(text: str) -> Opaque:
    address, slash, bits = text.partition("/")
    try:
        if not slash or re.fullmatch(r"0|[1-9]\d*", bits) is None or "%" in address:
            raise ValueError("no '/'" if not slash else "bad bits after slash")  # noqa: TRY301 - one text for all
        found = ip_interface(text)
    except ValueError as error:
        raise FunctionError(f"network address parse error during conversion from string: {error}") from error
    if isinstance(found.ip, IPv6Address) and found.ip.ipv4_mapped is not None:
        raise FunctionError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Opaque("cidr", str(found))


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except FunctionError:
        return False
    return True


def _contains_ip(cidr: Opaque, ip: Opaque) -> bool:
    return _of(ip) in ip_network(cidr.text, strict=False)


def _contains_cidr(cidr: Opaque, other: Opaque) -> bool:
    outer, inner = ip_network(cidr.text, strict=False), ip_network(other.text, strict=False)
    return outer.version == inner.version and outer.prefixlen <= inner.prefixlen and outer.overlaps(inner)


NETWORK: Final[tuple[Function, ...]] = (
    plain("url", "url", _url, "string"),
    plain("isURL", "bool", lambda text: uri_fault(text) is None, "string"),
    member("getScheme", "string", lambda url: _parts(url).scheme, "url"),
    member("getHost", "string", _host, "url"),
    member("getHostname", "string", _hostname, "url"),
    member("getPort", "string", _port, "url"),
    member("getEscapedPath", "string", lambda url: quote(_parts(url).path, safe=_PATH_SAFE), "url"),
    member("getQuery", "{[string]}", _query, "url"),
    plain("ip", "ip", _ip, "string"),
    plain("isIP", "bool", _accepts, "string"),
    plain("ip.isCanonical", "bool", lambda text: str(_parse_ip(text)) == text, "string"),
    plain("string", "string", lambda ip: ip.text, "ip"),
    member("family", "int", lambda ip: _of(ip).version, "ip"),
    member("isUnspecified", "bool", lambda ip: _of(ip).is_unspecified, "ip"),
    member("isLoopback", "bool", lambda ip: _of(ip).is_loopback, "ip"),
    member("isLinkLocalMulticast", "bool", _link_local_multicast, "ip"),
    member("isLinkLocalUnicast", "bool", lambda ip: _of(ip).is_link_local, "ip"),
    member("isGlobalUnicast", "bool", _is_global, "ip"),
    plain("cidr", "cidr", _cidr, "string"),
    plain("isCIDR", "bool", _is_cidr, "string"),
    plain("string", "string", lambda cidr: cidr.text, "cidr"),
    member("containsIP", "bool", lambda cidr, ip: _contains_ip(cidr, _ip(ip)), "cidr", "string"),
    member("containsIP", "bool", _contains_ip, "cidr", "ip"),
    member("containsCIDR", "bool", lambda cidr, other: _contains_cidr(cidr, _cidr(other)), "cidr", "string"),
    member("containsCIDR", "bool", _contains_cidr, "cidr", "cidr"),
    member("ip", "ip", lambda cidr: Opaque("ip", str(ip_interface(cidr.text).ip)), "cidr"),
    member("prefixLength", "int", lambda cidr: ip_interface(cidr.text).network.prefixlen, "cidr"),
    member("masked", "cidr", lambda cidr: Opaque("cidr", str(ip_interface(cidr.text).network)), "cidr"),
)
