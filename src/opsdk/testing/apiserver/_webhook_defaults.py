"""Defaults of admission webhooks' configurations."""

from __future__ import annotations

from opsdk.testing.apiserver._json import Document, as_list, as_object

__all__ = ["default_mutating_webhooks", "default_validating_webhooks"]


def default_mutating_webhooks(document: Document) -> None:
    """Fill in what the server fills in for a MutatingWebhookConfiguration."""
    default_validating_webhooks(document)
    for value in as_list(document.get("webhooks")):
        as_object(value).setdefault("reinvocationPolicy", "Never")


def default_validating_webhooks(document: Document) -> None:
    """Fill in what the server fills in for a ValidatingWebhookConfiguration."""
    for value in as_list(document.get("webhooks")):
        webhook = as_object(value)
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        service = as_object(webhook.get("clientConfig")).get("service")
        if isinstance(service, dict):
            service.setdefault("port", 443)
        for rule in as_list(webhook.get("rules")):
            as_object(rule).setdefault("scope", "*")
