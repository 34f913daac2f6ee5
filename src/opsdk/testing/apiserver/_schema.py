"""Schemas of custom resources: what the store asks of them."""

from __future__ import annotations

from opsdk.testing.apiserver._fields import FieldError
from opsdk.testing.apiserver._schema_crd import default_crd, validate_crd
from opsdk.testing.apiserver._schema_values import same
from opsdk.testing.apiserver._structural import StructuralSchema

__all__ = ["FieldError", "StructuralSchema", "default_crd", "same", "validate_crd"]
