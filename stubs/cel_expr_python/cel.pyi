# What we use of cel-expr-python, whose own stubs are not marked as such (it lacks py.typed).
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

class EnvConfig: ...

def NewEnvConfigFromYaml(yaml: str) -> EnvConfig: ...

class Type:
    BOOL: ClassVar[Type]
    BYTES: ClassVar[Type]
    DOUBLE: ClassVar[Type]
    DURATION: ClassVar[Type]
    DYN: ClassVar[Type]
    INT: ClassVar[Type]
    LIST: ClassVar[Type]
    MAP: ClassVar[Type]
    NULL: ClassVar[Type]
    STRING: ClassVar[Type]
    TIMESTAMP: ClassVar[Type]
    UINT: ClassVar[Type]
    def __init__(self, signature: str) -> None: ...
    @staticmethod
    def AbstractType(name: str, params: Sequence[Type] = ...) -> Type: ...
    @staticmethod
    def List(element_type: Type) -> Type: ...
    @staticmethod
    def Map(key_type: Type, element_type: Type) -> Type: ...
    def name(self) -> str: ...

class Value:
    def plain_value(self) -> object: ...
    def type(self) -> Type: ...

class Activation: ...

class Expression:
    def eval(self, activation: Activation | None = ..., data: Mapping[str, object] | None = ...) -> Value: ...
    def return_type(self) -> Type: ...
    def serialize(self) -> bytes: ...

class Overload:
    def __init__(
        self,
        id: str,
        return_type: Type = ...,
        parameters: Sequence[Type] = ...,
        is_member: bool = ...,
        impl: Callable[..., Any] | None = ...,
    ) -> None: ...

class FunctionDecl:
    def __init__(self, name: str, overloads: Sequence[Overload]) -> None: ...

class Env:
    def Activation(self, data: Mapping[str, object]) -> Activation: ...
    def compile(self, expression: str, disable_check: bool = ...) -> Expression: ...
    def deserialize(self, serialized: bytes) -> Expression: ...

def NewEnv(
    descriptor_pool: object = ...,
    config: EnvConfig | None = ...,
    variables: Mapping[str, Type] | None = ...,
    functions: Sequence[FunctionDecl] | None = ...,
) -> Env: ...
