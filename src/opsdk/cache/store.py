"""Objects of one kind as bytes, with a small header each, decoded when somebody reads them.

Guarantees: each read hands out an object of its own, so nobody can spoil the cache by changing one. The bytes and
headers are not tracked by the garbage collector.

Not promised: that an object fits its model: whether it does is found out when it is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Generic, TypeAlias, final

import msgspec
from typing_extensions import TypeVar

from opsdk.cache._label_index import LabelIndex
from opsdk.cache.changes import Cached, Change, ObjectAdded, ObjectDeleted, ObjectModified
from opsdk.cache.header import Header, only_metadata, read_document
from opsdk.cache.selectors import Selector, selector_of
from opsdk.errors import DecodeError
from opsdk.models import codec_of, is_metadata_only, resource_of
from opsdk.protocols import KubeObject
from opsdk.types import LabelSelector, Request

__all__ = ["IndexFunction", "Key", "Malformed", "MalformedHook", "Store"]

T = TypeVar("T", bound=KubeObject)

_logger = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name. Tuples of text are not tracked by the collector."""

IndexFunction: TypeAlias = Callable[[Cached[T]], Iterable[str]]
"""The values under which an object is found. Called when the object changes; cheap if it needs the header only.

When it raises, that is logged, and the object is not in the index.
"""


@final
class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """An object that does not fit its model.

    Args:
        kind: Its class.
        header: Its header, if at least that could be read.
        error: Which field, and why.
    """

    kind: type[KubeObject]
    header: Header | None
    error: DecodeError


MalformedHook: TypeAlias = Callable[[Malformed], None]
"""Is told about an object that does not fit its model, once per resourceVersion."""


@final
class _Index(Generic[T]):
    def __init__(self, function: IndexFunction[T]) -> None:
        self.function = function
        self.keys: dict[str, set[Key]] = {}
        self.values: dict[Key, tuple[str, ...]] = {}

    def put(self, key: Key, values: Iterable[str]) -> None:
        self.drop(key)
        if found := tuple(values):
            self.values[key] = found
            for value in found:
                keys = self.keys.get(value)
                if keys is None:
                    keys = self.keys[value] = set()
                keys.add(key)

    def drop(self, key: Key) -> None:
        for value in self.values.pop(key, ()):
            if keys := self.keys.get(value):
                keys.discard(key)
                if not keys:
                    del self.keys[value]


def key_of(request: Request) -> Key:
    """The key of the object that a request names."""
    return request.namespace or "", request.name


def _by_owner(cached: Cached[T]) -> Iterable[str]:
    owners = cached.header.owners
    if len(owners) < 2:  # as for nearly all
        return (owners[0].uid,) if owners else ()
    return tuple({owner.uid for owner in owners})


_OWNER: Final = "owner"


@final
class Store(Generic[T]):
    """The objects of one kind. Written by one informer, read by anybody on the loop.

    Args:
        kind: The class that objects are decoded to.
        keep_manager: Whose server-side apply entry is kept of an object's managedFields; all others are cut.
        malformed: Is told about objects that do not fit.
    """

    def __init__(
        self, kind: type[T], *, keep_manager: str | None = None, malformed: MalformedHook | None = None
    ) -> None:
        self._kind = kind
        self._resource = resource_of(kind)
        self._codec = codec_of(kind)
        self._keep_manager = keep_manager
        self._metadata_only = is_metadata_only(kind)
        self._hook = malformed
        self._objects: dict[Key, Cached[T]] = {}
        self._lists = 0
        self._namespaces: dict[str, set[Key]] = {}
        self._indexes: dict[str, _Index[T]] = {_OWNER: _Index(_by_owner)}
        self._labels = LabelIndex()
        self._uids: dict[str, Key] = {}  # no index: one set for each object would be a burden to the collector
        self._reported: dict[Key, tuple[str, str]] = {}

    # Reading

    @property
    def kind(self) -> type[T]:
        """The class of the objects."""
        return self._kind

    def __len__(self) -> int:
        return len(self._objects)

    def __bool__(self) -> bool:
        return True  # an empty store is a store

    def __contains__(self, request: Request) -> bool:
        return key_of(request) in self._objects

    def cached(self, request: Request, /) -> Cached[T] | None:
        """The object as the cache has it; None when there is none."""
        return self._objects.get((request.namespace or "", request.name))

    def get(self, request: Request, /) -> T | None:
        """The object, decoded; None when there is none.

        Raises:
            DecodeError: It does not fit its model.
        """
        found = self._objects.get(key_of(request))
        return None if found is None else self.decode(found)

    def select(
        self, *, namespace: str | None = None, labels: LabelSelector | Selector | None = None
    ) -> Iterator[Cached[T]]:
        """The objects of a namespace, or of all, whose labels match; in no order. As they are at the call.

        Args:
            namespace: None: all namespaces.
            labels: A text such as `app=web`, a mapping, or what `selector_of` has made of one; None: all objects.

        Raises:
            ObjectError: `labels` is no selector.
        """
        selector = selector_of(labels)
        found = [self._objects[key] for key in self._candidates(namespace, selector)]
        return (cached for cached in found if selector.matches(cached.header.labels))

    def _candidates(self, namespace: str | None, selector: Selector) -> Collection[Key]:
        if selector:
            found = self._labels.candidates(
                selector, ((key, cached.header.labels) for key, cached in self._objects.items())
            )
            if found is not None:
                return found if namespace is None else [key for key in found if key[0] == namespace]
        return self._objects if namespace is None else self._namespaces.get(namespace, ())

    def by_uid(self, uid: str, /) -> Cached[T] | None:
        """The object with that uid."""
        key = self._uids.get(uid)
        return None if key is None else self._objects.get(key)

    def owned_by(self, uid: str, /) -> list[Cached[T]]:
        """The objects with an owner reference to that uid."""
        return self.by_index(_OWNER, uid)

    def by_index(self, name: str, value: str, /) -> list[Cached[T]]:
        """The objects that a declared index finds under `value`.

        Raises:
            LookupError: No index of that name was declared.
        """
        index = self._indexes.get(name)
        if index is None:
            raise LookupError(f"{self._resource.kind} has no index {name!r}; declare it with add_index")
        return [found for key in index.keys.get(value, ()) if (found := self._objects.get(key)) is not None]

    def add_index(self, name: str, function: IndexFunction[T], /) -> None:
        """Declare an index. Objects that are there already are indexed at once.

        Raises:
            ValueError: There is one of that name.
        """
        if name in self._indexes:
            msg = f"{self._resource.kind} already has an index {name!r}"
            raise ValueError(msg)
        index = _Index(function)
        self._indexes[name] = index
        for key, cached in self._objects.items():
            index.put(key, self._values(index, cached))

    def decode(self, cached: Cached[T], /) -> T:
        """Decode an object of this store, and report it if it does not fit.

        Raises:
            DecodeError: It does not fit its model.
        """
        try:
            return cached.decode()
        except DecodeError as error:
            self._report(cached.header, error)
            raise

    def decode_all(self, found: Iterable[Cached[T]], /) -> list[T]:
        """Decode objects; those that do not fit are reported and left out."""
        objects: list[T] = []
        for cached in found:
            try:
                objects.append(self.decode(cached))
            except DecodeError:
                continue
        return objects

    # Writing: the informer's.

    def read(self, raw: bytes, /) -> Cached[T] | None:
        """A document as it would be stored; None, and a report, when not even its metadata can be read."""
        try:
            header, rest = read_document(raw, kind=self._resource.kind, keep_manager=self._keep_manager)
        except DecodeError as error:
            self._report(None, error)
            return None
        return Cached(header, only_metadata(rest) if self._metadata_only else rest, self._codec)

    def put(self, new: Cached[T], /, *, initial: bool = False, listed: bool = False) -> list[Change[T]]:
        """Store a version of an object, and say what that changes: nothing, if it is there already.

        Args:
            new: The version.
            initial: Nothing happened to it; passed on.
            listed: A list showed it, so it is what there is now, even if it is older than what was seen before: then
                the server was restored from a backup. Else an older version is one that was overtaken.
        """
        header = new.header
        key = (header.namespace or "", header.name)
        old = self._objects.get(key)
        new.listed_in = self._lists
        if old is None:
            self._insert(key, new)
            return [ObjectAdded(new=new, initial=initial)]
        if old.header.uid != header.uid:
            self._drop(key, old)
            self._insert(key, new)
            return [ObjectDeleted(old=old), ObjectAdded(new=new, initial=initial)]
        if old.header.resource_version == header.resource_version:
            old.listed_in = self._lists
            return []
        if not listed and header.order < old.header.order:
            return []
        self._replace(key, old, new)
        return [ObjectModified(old=old, new=new)]

    def discard(self, last: Cached[T], /) -> list[Change[T]]:
        """Take out an object of which `last` is the last that is known, and say what that changes."""
        key = (last.header.namespace or "", last.header.name)
        old = self._objects.get(key)
        if old is None or old.header.uid != last.header.uid:
            return []
        self._drop(key, old)
        return [ObjectDeleted(old=last)]

    def list_started(self) -> None:
        """A list begins, or begins again."""
        self._lists += 1

    def discard_unlisted(self) -> list[Change[T]]:
        """Take out all objects that were not put since the list began, and say what that changes."""
        gone = [(key, cached) for key, cached in self._objects.items() if cached.listed_in != self._lists]
        for key, cached in gone:
            self._drop(key, cached)
        return [ObjectDeleted(old=cached) for _, cached in gone]

    def _insert(self, key: Key, new: Cached[T]) -> None:
        self._objects[key] = new
        self._uids[new.header.uid] = key
        self._labels.put(key, new.header.labels)
        keys = self._namespaces.get(key[0])
        if keys is None:
            keys = self._namespaces[key[0]] = set()
        keys.add(key)
        for index in self._indexes.values():
            index.put(key, self._values(index, new))

    def _replace(self, key: Key, old: Cached[T], new: Cached[T]) -> None:
        """Another version of an object that is there: its keys stay where they are."""
        self._objects[key] = new
        known = self._uids.get(new.header.uid)
        if known is not None and known == key:
            key = known  # one tuple for all places, as long as the object lives
        else:
            self._uids[new.header.uid] = key
        if old.header.labels != new.header.labels:
            self._labels.drop(key, old.header.labels)
            self._labels.put(key, new.header.labels)
        for name, index in self._indexes.items():
            if name != _OWNER or old.header.owners != new.header.owners:
                index.put(key, self._values(index, new))

    def _drop(self, key: Key, old: Cached[T]) -> None:
        del self._objects[key]
        if self._uids.get(old.header.uid) == key:
            del self._uids[old.header.uid]
        self._labels.drop(key, old.header.labels)
        self._reported.pop(key, None)
        if keys := self._namespaces.get(key[0]):
            keys.discard(key)
            if not keys:
                del self._namespaces[key[0]]
        for index in self._indexes.values():
            index.drop(key)

    def _values(self, index: _Index[T], cached: Cached[T]) -> Iterable[str]:
        try:
            return tuple(index.function(cached))
        except DecodeError as error:
            self._report(cached.header, error)
        except Exception:
            # One object that a function did not expect must not stop the cache for all others.
            _logger.exception("%s: an index function failed for %s", self._resource, cached.header.request)
        return ()

    def _report(self, header: Header | None, error: DecodeError) -> None:
        key: Key = (error.namespace or "", error.name) if header is None else (header.namespace or "", header.name)
        version = ("", str(error)) if header is None else (header.uid, header.resource_version)
        if self._reported.get(key) == version:
            return
        self._reported[key] = version
        if self._hook is not None:
            self._hook(Malformed(kind=self._kind, header=header, error=error))
