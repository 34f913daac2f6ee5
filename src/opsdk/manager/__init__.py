"""Everything under one roof: runnables, leader election, probes, metrics, logs, and an orderly end."""

from opsdk.manager._shares import ShardTurn
from opsdk.manager.election import LeaderElector, LeaderObserver, LeaseClient
from opsdk.manager.logs import LogFormat, configure_logging
from opsdk.manager.manager import Manager
from opsdk.manager.options import ManagerOptions, default_manager_options
from opsdk.manager.probes import Check
from opsdk.manager.sharding import Sharding, ShardMembership
from opsdk.manager.wiring import SetupOption, for_state_machine, setup

__all__ = [
    "Check",
    "LeaderElector",
    "LeaderObserver",
    "LeaseClient",
    "LogFormat",
    "Manager",
    "ManagerOptions",
    "SetupOption",
    "ShardMembership",
    "ShardTurn",
    "Sharding",
    "configure_logging",
    "default_manager_options",
    "for_state_machine",
    "setup",
]
