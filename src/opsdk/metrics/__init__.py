"""Prometheus metrics under the names that dashboards already use, on an endpoint that a blocked loop cannot silence."""

from opsdk.metrics._collectors import ShardShare, ShardState, WorkInProgress
from opsdk.metrics.adapters import (
    EventMeter,
    EventOutcome,
    LeaderMeter,
    MachineMeter,
    PersistenceMeter,
    ReconcileMeter,
    RestClientMeter,
    WorkQueueMeter,
)
from opsdk.metrics.census import UNKNOWN_STATE, Census, CensusTotals
from opsdk.metrics.metrics import Metrics
from opsdk.metrics.serving import BindAddress, ServingTls, ThreadedServer, parse_bind_address

__all__ = [
    "UNKNOWN_STATE",
    "BindAddress",
    "Census",
    "CensusTotals",
    "EventMeter",
    "EventOutcome",
    "LeaderMeter",
    "MachineMeter",
    "Metrics",
    "PersistenceMeter",
    "ReconcileMeter",
    "RestClientMeter",
    "ServingTls",
    "ShardShare",
    "ShardState",
    "ThreadedServer",
    "WorkInProgress",
    "WorkQueueMeter",
    "parse_bind_address",
]
