"""Caches of what the API server knows: reflector, store, informer, and a client that reads from them.

A cache holds bytes and a small header for each object, and decodes an object only when somebody reads it.
"""

from opsdk.cache.changes import Cached, Change, Handler, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.cache.client import CachedClient, CachedStatusWriter
from opsdk.cache.header import Header, OwnerRef
from opsdk.cache.informer import Informer
from opsdk.cache.informers import Informers
from opsdk.cache.reflector import Reflector, ReflectorOptions, ReflectorSink
from opsdk.cache.selectors import Requirement, Selector, selector_of
from opsdk.cache.store import IndexFunction, Malformed, MalformedHook, Store

__all__ = [
    "Cached",
    "CachedClient",
    "CachedStatusWriter",
    "Change",
    "Handler",
    "Header",
    "IndexFunction",
    "Informer",
    "Informers",
    "Malformed",
    "MalformedHook",
    "ObjectAdded",
    "ObjectDeleted",
    "ObjectModified",
    "OwnerRef",
    "Reflector",
    "ReflectorOptions",
    "ReflectorSink",
    "Requirement",
    "Selector",
    "Store",
    "selector_of",
]
