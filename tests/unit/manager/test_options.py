"""Options are refused where they are written, by their name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opsdk.errors import ConfigurationError
from opsdk.manager.options import ManagerOptions, default_manager_options


def test_the_defaults_are_those_of_production() -> None:
    options = default_manager_options("widgets.demo.example.com")
    assert options.leader_election
    assert options.leader_election_id == "widgets.demo.example.com"
    assert (options.metrics_bind_address, options.probe_bind_address) == (":8080", ":8081")
    assert (options.lease_duration, options.renew_deadline, options.retry_period) == (
        timedelta(seconds=15),
        timedelta(seconds=10),
        timedelta(seconds=2),
    )
    assert options.grace_period == timedelta(seconds=25)
    assert options.readiness_staleness == timedelta(minutes=5)
    assert options.liveness_block == timedelta(seconds=30)


def test_replace_checks_again() -> None:
    options = default_manager_options("widgets.demo.example.com")
    assert replace(options, metrics_bind_address=":9090").metrics_bind_address == ":9090"
    with pytest.raises(ConfigurationError, match="metrics_bind_address"):
        replace(options, metrics_bind_address="9090")


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"leader_election": True}, "leader_election_id"),
        ({"lease_duration": timedelta(seconds=10)}, "lease_duration"),
        ({"retry_period": timedelta(seconds=9)}, "renew_deadline"),
        ({"retry_period": timedelta(0)}, "retry_period"),
        ({"probe_bind_address": "nowhere"}, "probe_bind_address"),
        ({"probe_bind_address": ":8080"}, "probe_bind_address and metrics_bind_address"),
        ({"metrics_key": Path("key.pem")}, "metrics_certificate"),
        ({"grace_period": timedelta(seconds=-1)}, "grace_period"),
        ({"readiness_staleness": timedelta(0)}, "readiness_staleness"),
        ({"liveness_block": timedelta(0)}, "liveness_block"),
        ({"field_manager": ""}, "field_manager"),
        ({"namespaces": "default"}, "namespaces"),
        ({"namespaces": ("a", "a")}, "namespaces"),
        ({"namespaces": ("",)}, "namespaces"),
        ({"log_level": "LOUD"}, "log_level"),
        ({"log_format": "xml"}, "log_format"),
    ],
)
def test_a_wrong_option_is_refused_by_name(values: dict[str, Any], field: str) -> None:
    everything: dict[str, Any] = {"leader_election": False, **values}
    with pytest.raises(ConfigurationError, match=field):
        ManagerOptions(**everything)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"grace_period": 5}, "grace_period: 5 is an int; give a timedelta"),
        ({"lease_duration": 15}, "lease_duration: 15 is an int; give a timedelta"),
        ({"metrics_bind_address": 8080}, "metrics_bind_address: 8080 is an int; give a str"),
        ({"metrics_key": "key.pem"}, "metrics_key: 'key.pem' is a str; give a pathlib.Path"),
        ({"leader_election_namespace": 1}, "leader_election_namespace: 1 is an int; give a str"),
        ({"namespaces": ["a"]}, "namespaces: ['a'] is a list; give a tuple of names"),
        ({"namespaces": (1,)}, "namespaces: 1 is an int; give a str"),
        ({"metrics_bind_address": ":99999"}, "the port is out of range; it must be 0 to 65535"),
        ({"leader_election_id": "Bad_Name"}, "leader_election_id is 'Bad_Name'; it must be a DNS name"),
        ({"leader_election_namespace": "a.b"}, "leader_election_namespace is 'a.b'; it must be the name of a"),
        ({"namespaces": ("Bad_Name",)}, "namespaces: 'Bad_Name' must be the name of a namespace"),
    ],
)
def test_a_wrong_type_or_name_is_told_with_the_way_out(values: dict[str, Any], text: str) -> None:
    everything: dict[str, Any] = {"leader_election_id": "widgets", **values}
    with pytest.raises(ConfigurationError) as raised:
        ManagerOptions(**everything)
    assert text in str(raised.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"leader_election_id.*grace_period.*field_manager"):
        ManagerOptions(grace_period=timedelta(seconds=-1), field_manager="")


def test_both_endpoints_may_ask_the_system_for_a_port() -> None:
    ManagerOptions(leader_election=False, metrics_bind_address="127.0.0.1:0", probe_bind_address="127.0.0.1:0")
