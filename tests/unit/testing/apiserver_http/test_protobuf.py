"""Bodies in Kubernetes' protobuf."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsdk.client.transport import HttpRequest
from opsdk.testing.apiserver._protobuf import MEDIA_TYPE, decode_protobuf, json_request
from opsdk.testing.apiserver._status import StatusError


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    """One field as it stands on the wire."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, content: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, content) + field(3, "")


def decoded(api_version: str, kind: str, content: bytes) -> dict[str, Any]:
    document: dict[str, Any] = decode_protobuf(envelope(api_version, kind, content))
    return document


def metadata(name: str, more: bytes = b"") -> bytes:
    empty_texts = b"".join(field(number, "") for number in (2, 3, 4, 5, 6))
    return field(1, field(1, name) + empty_texts + field(7, 0) + field(8, b"") + more)


def test_what_is_empty_and_no_pointer_is_left_out() -> None:
    assert decoded("v1", "ConfigMap", metadata("a")) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
    }


def test_maps_bytes_and_pointers() -> None:
    entry = field(1, "k") + field(2, "v")
    binary = field(1, "b") + field(2, b"\x00\xff")
    content = metadata("a", field(11, entry)) + field(2, entry) + field(3, binary) + field(4, 0)
    assert decoded("v1", "ConfigMap", content) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"k": "v"}},
        "data": {"k": "v"},
        "binaryData": {"b": "AP8="},
        "immutable": False,
    }


def test_a_pointer_to_zero_is_kept() -> None:
    spec = field(1, 0) + field(5, 0) + field(7, 0)
    assert decoded("apps/v1", "Deployment", field(2, spec))["spec"] == {"replicas": 0}


def test_inlined_structs_lists_and_numbers() -> None:
    volume = field(1, "vol") + field(2, field(2, field(1, "")))  # emptyDir, inlined
    port = field(1, "") + field(3, 8080) + field(4, "TCP")
    container = field(1, "c") + field(2, "i") + field(3, "one") + field(3, "two") + field(6, port)
    spec = field(1, volume) + field(2, container) + field(4, -1)
    found = decoded("v1", "Pod", field(2, spec))["spec"]
    assert found == {
        "volumes": [{"name": "vol", "emptyDir": {}}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["one", "two"],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            }
        ],
        "terminationGracePeriodSeconds": -1,
    }


def test_int_or_string_quantity_and_times() -> None:
    named = field(3, 80) + field(4, field(1, 1) + field(2, 0) + field(3, "http"))
    numbered = field(3, 81) + field(4, field(1, 0) + field(2, 8080) + field(3, ""))
    ports = decoded("v1", "Service", field(2, field(1, named) + field(1, numbered)))["spec"]["ports"]
    assert ports == [{"port": 80, "targetPort": "http"}, {"port": 81, "targetPort": 8080}]
    hard = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    assert decoded("v1", "ResourceQuota", field(2, hard))["spec"] == {"hard": {"cpu": "500m"}}
    moment = field(1, 1_767_225_600) + field(2, 250_000_000)
    lease = decoded("coordination.k8s.io/v1", "Lease", field(2, field(1, "me") + field(3, moment)))
    assert lease["spec"] == {"holderIdentity": "me", "acquireTime": "2026-01-01T00:00:00.250000Z"}
    deleted = decoded("v1", "ConfigMap", field(1, field(1, "a") + field(9, moment)))
    assert deleted["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"


def test_groups_are_known_by_their_full_names() -> None:
    rule = field(1, "get") + field(3, "pods")
    role = decoded("rbac.authorization.k8s.io/v1", "Role", metadata("r") + field(2, rule))
    assert role["rules"] == [{"verbs": ["get"], "resources": ["pods"]}]
    options = decoded("apps/v1", "DeleteOptions", field(4, "Background"))
    assert options == {"apiVersion": "apps/v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"{}", "provided data does not appear to be a protobuf message"),
        (envelope("v1", "Nothing", b""), 'no kind "Nothing" is registered for version "v1"'),
        (envelope("v1", "ConfigMap", b"\x0a\xff"), "unable to decode protobuf"),
        (envelope("v1", "ConfigMap", b"\x0a\x7f"), "unexpected EOF"),
        (envelope("v1", "ConfigMap", b"\x0f"), "illegal wireType 7"),
    ],
)
def test_garbage_is_a_bad_request(raw: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        decode_protobuf(raw)
    request = HttpRequest(method="POST", path="/", headers={"content-type": MEDIA_TYPE}, body=raw)
    with pytest.raises(StatusError, match=fault):
        json_request(request)


def test_a_request_in_protobuf_becomes_one_in_json() -> None:
    body = envelope("v1", "ConfigMap", metadata("a"))
    request = HttpRequest(method="POST", path="/x", headers={"content-type": MEDIA_TYPE, "accept": "y"}, body=body)
    found = json_request(request)
    assert found.headers == {"content-type": "application/json", "accept": "y"}
    assert json.loads(found.body or b"")["metadata"] == {"name": "a"}
    plain = HttpRequest(method="POST", path="/x", headers={"content-type": "application/json"}, body=b"{}")
    assert json_request(plain) is plain
