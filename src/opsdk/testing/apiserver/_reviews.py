"""Reviews: kinds that are only asked. Here everybody may do everything, as an administrator."""

from __future__ import annotations

from typing import Final

from opsdk.testing.apiserver._json import Document
from opsdk.testing.apiserver._kinds import KindInfo

__all__ = ["REVIEWS", "answer"]

_USER: Final[Document] = {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
REVIEWS: Final = frozenset(
    {
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
        "TokenReview",
    }
)


def answer(info: KindInfo, document: Document) -> Document:
    """The review with its status filled in."""
    status: Document
    match info.kind:
        case "SelfSubjectReview":
            status = {"userInfo": dict(_USER)}
        case "SelfSubjectRulesReview":
            status = {
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            }
        case "TokenReview":
            status = {"authenticated": True, "user": dict(_USER)}
        case _:
            status = {"allowed": True}
    return {**document, "status": status}
