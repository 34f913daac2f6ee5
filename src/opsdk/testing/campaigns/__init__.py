"""Campaigns: change a resource's spec in all ways that its schema allows, and see whether the operator follows."""

from opsdk.testing.campaigns._campaign import CampaignReport, campaign
from opsdk.testing.campaigns._specs import invalid_specs_of, specs_of
from opsdk.testing.campaigns._strategies import values_of
from opsdk.testing.campaigns.errors import CampaignError, Law

__all__ = [
    "CampaignError",
    "CampaignReport",
    "Law",
    "campaign",
    "invalid_specs_of",
    "specs_of",
    "values_of",
]
