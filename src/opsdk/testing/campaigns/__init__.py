"""Campaigns: change a resource's spec in all ways that its schema allows, and see whether the operator follows."""

from opsdk.testing.campaigns._campaign import CampaignReport, campaign
from opsdk.testing.campaigns._specs import invalid_specs_of, specs_of
from opsdk.testing.campaigns._strategies import values_of
from opsdk.testing.campaigns.errors import CampaignError, Law
from opsdk.testing.campaigns.operators import MakeOperator, Operator, managed, with_lightkube

__all__ = [
    "CampaignError",
    "CampaignReport",
    "Law",
    "MakeOperator",
    "Operator",
    "campaign",
    "invalid_specs_of",
    "managed",
    "specs_of",
    "values_of",
    "with_lightkube",
]
