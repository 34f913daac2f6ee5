"""A state machine reconciler: lifecycle states made explicit, visible in status, measured.

Usable with any client that speaks the `opsdk.protocols.Client` protocol; needs no manager and no controller.
"""

from opsdk.statemachine.coverage import Coverage, Firing
from opsdk.statemachine.explanation import Explanation, TransitionExplanation
from opsdk.statemachine.graph import Edge, Graph
from opsdk.statemachine.handler import Hook, Predicate, StateCondition, StateEvent, StateHandler, States, Transition
from opsdk.statemachine.machine import StateMachine
from opsdk.statemachine.observer import MachineObserver, PassResult

__all__ = [
    "Coverage",
    "Edge",
    "Explanation",
    "Firing",
    "Graph",
    "Hook",
    "MachineObserver",
    "PassResult",
    "Predicate",
    "StateCondition",
    "StateEvent",
    "StateHandler",
    "StateMachine",
    "States",
    "Transition",
    "TransitionExplanation",
]
