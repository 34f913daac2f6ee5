"""What an author declares: which children an owner has, and how they come about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar, final

from typing_extensions import override

from opsdk.models import resource_of
from opsdk.ownership._answers import PURE, function_name, is_async
from opsdk.ownership._children import Binding, Children, TypedChildren
from opsdk.protocols import KubeObject

__all__ = ["For", "OwnedKind", "OwnedResources"]

CR = TypeVar("CR", bound=KubeObject)
CR_contra = TypeVar("CR_contra", bound=KubeObject, contravariant=True)
Child = TypeVar("Child", bound=KubeObject)


class OwnedKind(ABC, Generic[CR_contra]):
    """One kind of children, of an owner of type `CR`. Made with `For`.

    It does not say which class the children are of, so that one list can hold several kinds.
    """

    @property
    @abstractmethod
    def kind(self) -> type[KubeObject]:
        """The class of the children."""

    @property
    @abstractmethod
    def finalizer(self) -> str | None:
        """The finalizer that holds the owner until these children are gone."""

    @property
    @abstractmethod
    def after(self) -> tuple[type[KubeObject], ...]:
        """The kinds whose children have to be ready first."""

    @property
    @abstractmethod
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the declaration by itself."""

    @abstractmethod
    def bind(self, binding: Binding, /) -> Children[CR_contra]:
        """The children, to be read and written in a particular way. For `ResourceOwner`."""


OwnedResources: TypeAlias = Sequence[OwnedKind[CR]]
"""The kinds of children that an owner has, in the order in which they are created."""


@final
class For(OwnedKind[CR], Generic[CR, Child]):
    """Children of one kind.

    The functions are pure: they look at what they are given, do no I/O, and return at once.

    Args:
        kind: The class of the children.
        build: The children that the owner is to have now, by name. None and an empty list mean: none, and those that
            are there are deleted.
        update: What an existing child is to look like: the child that was given, changed, or a new one, in which only
            what it says counts. Without it a child is created when it is missing, and never changed afterwards.
            Mind that a part made from scratch removes nothing by leaving it out. After
            `existing.spec.template = pod_template(cr)` the volumes of an earlier template stay, for ever, when the
            new one has None there. To remove them change what was given in place
            (`existing.spec.template.spec.volumes = None`), have the new part say `[]` (of a map of your own like
            `data`: `{}`) instead of None, or use `apply=True` instead of `update`.
        ready: Whether a child is ready. Without it children are ready.
        finalizer: Keeps a deleted owner until these children are gone. Needed where Kubernetes allows no owner
            reference: children in another namespace, and cluster-scoped children of a namespaced owner. They are then
            looked for in all namespaces.
        apply: Keep children as built by server-side apply under the client's field manager: what others write over
            these fields is reverted, and what they have set besides stays. Not together with `update`.
        force: With `apply`: take fields over that another manager applies too, with another value. Default: that is a
            `FieldConflictError` with its name, and the child stays as it is.
        adopt: Take over a child of the right name that belongs to nobody: it gets our labels and owner reference, and
            is then kept, and deleted, like one of ours. Default: a name that is taken is a `ChildConflictError`.
        after: The kinds that have to be ready before anything of this kind is created or changed. No longer wanted
            children go in the opposite order; so do those of a deleted owner, as far as finalizers hold it.
        when: Whether the owner is to have children of this kind at all; false is the same as a `build` without any.
            Where nothing is wanted, the server need not know the kind.
        recreate: Delete a child, and make it anew, where a change meets an immutable field. Default: that is an error.
    """

    def __init__(
        self,
        kind: type[Child],
        build: Callable[[CR], list[Child] | None],
        *,
        update: Callable[[CR, Child], Child] | None = None,
        ready: Callable[[Child], bool] | None = None,
        finalizer: str | None = None,
        apply: bool = False,
        force: bool = False,
        adopt: bool = False,
        after: Sequence[type[KubeObject]] = (),
        when: Callable[[CR], bool] | None = None,
        recreate: bool = False,
    ) -> None:
        self._kind = kind
        self._build = build
        self._update = update
        self._ready = ready
        self._finalizer = finalizer
        self._apply = apply
        self._force = force
        self._adopt = adopt
        # A single class is a fault, which is told with the others.
        self._after: tuple[type[KubeObject], ...] = () if isinstance(after, type) else tuple(after)
        self._after_fault = (
            f"after is the class {after.__name__}; give a tuple: after=({after.__name__},)"
            if isinstance(after, type)
            else ""
        )
        self._when = when
        self._recreate = recreate

    @property
    @override
    def kind(self) -> type[Child]:
        """The class of the children."""
        return self._kind

    @property
    @override
    def finalizer(self) -> str | None:
        """The finalizer that holds the owner until these children are gone."""
        return self._finalizer

    @property
    @override
    def after(self) -> tuple[type[KubeObject], ...]:
        """The kinds whose children have to be ready first."""
        return self._after

    @property
    @override
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the declaration by itself."""
        faults: list[str] = [self._after_fault] if self._after_fault else []
        functions: dict[str, object] = {
            "build": self._build,
            "update": self._update,
            "ready": self._ready,
            "when": self._when,
        }
        for name, function in functions.items():
            if function is None and name != "build":
                continue
            if not callable(function):
                faults.append(f"{name} is {function_name(function)}, which is no function")
            elif is_async(function):
                faults.append(f"{name}: {function_name(function)} is async; {PURE}")
        if self._apply and self._update is not None:
            faults.append("has both `update` and apply=True; apply writes what `build` returns")
        if self._force and not self._apply:
            faults.append("has force=True without apply=True, where there is nothing to force")
        if self._recreate and not self._apply and self._update is None:
            faults.append("has recreate=True, but neither `update` nor apply=True, so nothing is ever changed")
        return tuple(faults)

    @override
    def bind(self, binding: Binding, /) -> Children[CR]:
        """The children, to be read and written in a particular way. For `ResourceOwner`."""
        return TypedChildren(
            binding=binding,
            kind=self._kind,
            info=resource_of(self._kind),
            build=self._build,
            update=self._update,
            is_ready=self._ready,
            when=self._when,
            finalizer=self._finalizer,
            apply=self._apply,
            force=self._force,
            adopt=self._adopt,
            recreate=self._recreate,
        )
