"""What a user configures, parsed once at the door into typed, frozen models.

The names are LangGraph's (`IndexConfig`, `TTLConfig`) with memstore's own beside them; an unknown one is named in the
error, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from langgraph.store.base import tokenize_path
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from memstore.analysis import languages
from memstore.errors import InvalidArgument, InvalidConfig
from memstore.indexes import Metric, Precision
from memstore.namespaces import is_storable

Mode: TypeAlias = Literal["hybrid", "semantic", "lexical"]
"""How a search ranks: by meaning and words together, by meaning alone, by words alone."""
VectorKind: TypeAlias = Literal["vector", "halfvec"]
"""How Postgres keeps vectors: in 32 or in 16 bits a number."""
Ann: TypeAlias = Literal["auto", "hnsw", "ivfflat", "none"]
"""The index for wide scopes in Postgres; HNSW where it is `auto`."""
HYBRID_NEEDS_COSINE: Final = "hybrid ranks by the cosine; choose metric 'cosine' or mode 'semantic'"
MAX_CONTEXT: Final = 5
"""Neighbours on each side; each step away counts half, and the next would count a 64th."""
WHOLE_VALUE = "$"
"""The path of the whole value, embedded as JSON text."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0, le=1)]


class _Parsed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)

    @classmethod
    def parse(cls, given: Mapping[str, Any], what: str) -> Self:
        """Parse a user's dict.

        Raises:
            InvalidConfig: A key is unknown or a value is not of its kind; the message names the key, not the value.
        """
        if not isinstance(given, Mapping):
            raise InvalidConfig(f"{what} is a dict, got {type(given).__name__}")
        if {"metric", "distance_type"} <= given.keys():
            raise InvalidConfig(f"{what} has both 'metric' and 'distance_type', which mean the same; give one")
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            name = ".".join(map(str, fault["loc"]))
            if not name:
                raise InvalidConfig(f"{what}: {fault['msg'].removeprefix('Value error, ')}") from None
            if fault["type"] == "extra_forbidden":
                raise InvalidConfig(f"{what} has no key {name!r}; {cls._suggest(name)}") from None
            raise InvalidConfig(f"{what}[{name!r}]: {fault['msg'].removeprefix('Value error, ')}") from None

    @classmethod
    def _suggest(cls, name: str) -> str:
        names = [known for known in cls.model_fields if known != "text_fields"]
        close = get_close_matches(name, [*names, "distance_type"], n=1)
        return f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"


class IndexSettings(_Parsed):
    """LangGraph's `IndexConfig`, with memstore's own keys."""

    embed: Any = None
    dims: int | None = Field(default=None, gt=0)
    fields: list[str] | None = None
    metric: Metric = Field(default="cosine", validation_alias=AliasChoices("metric", "distance_type"))
    model: str | None = None
    """The model's name, where `embed` cannot tell it: a store refuses to mix vectors of two models."""
    mode: Mode | None = None
    """How a search ranks unless it says otherwise; hybrid under `cosine`, else semantic, where it is None."""
    language: str | None = None
    """The language of the texts, by which words are stemmed; English where it is None."""
    exact_below: int = Field(default=20_000, ge=0)
    """Texts in a search's scope up to which every one is scored; above, an index proposes the candidates."""
    candidates: int = Field(default=1_000, ge=1)
    """Ranks of a wide search that come from the index; deeper ones follow exactly."""
    precision: Precision = "float32"
    """SQLite: how the numbers of vectors are kept in memory for wide searches; the first ranks are scored exactly."""
    words: list[str] | None = None
    """Paths whose words count with every text of the item, and are not embedded: its date, tags, a name.

    What the database remembers where it is None."""
    weights: dict[str, Weight] = Field(default_factory=dict)
    """What a text of a path counts, up to 1; 1 where it is not named."""
    context: int = Field(default=0, ge=0, le=MAX_CONTEXT)
    """Neighbours in writing order, on each side, that lend an item of their scores: for turns of a conversation."""
    min_score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The least score an item is found with."""
    recency: Positive | None = None
    """Days after which an item's age has taken half of what it can take off its score."""
    rerank: Any = None
    """What orders the first ranks anew: a callable, a cross-encoder's name, or a `Rerank`."""
    cache_mb: Positive = 256.0
    """Memory for the vectors and terms of recently searched namespaces, in MB (10^6 bytes)."""
    ann: Ann = "auto"
    """Postgres: the index for wide scopes, made when the first of them is searched; `none` ranks them exactly."""
    m: int = Field(default=16, ge=2, le=100)
    """Postgres: links of a vector in an HNSW index."""
    ef_construction: int = Field(default=64, ge=4, le=1000)
    """Postgres: candidates looked at while HNSW links a vector; at least twice `m`."""
    ef_search: int = Field(default=200, ge=1, le=1000)
    """Postgres: candidates that HNSW looks at first for a query."""
    vector_type: VectorKind | None = None
    """Postgres: how vectors are kept; `vector` where it is None."""
    pool_config: Any = None
    """LangGraph's spelling of `pool`, accepted so that a config can be shared."""

    text_fields: Any = None

    @model_validator(mode="before")
    @classmethod
    def _take_ann_index_config(cls, given: Any) -> Any:
        """Read LangGraph's spelling of the settings for Postgres."""
        if not isinstance(given, dict) or "ann_index_config" not in given:
            return given
        rest = dict(given)
        config = rest.pop("ann_index_config") or {}
        if not isinstance(config, Mapping) or config.keys() - _ANN_KEYS.keys():
            raise ValueError(f"'ann_index_config' takes {', '.join(_ANN_KEYS)}")
        named = {_ANN_KEYS[key]: value for key, value in config.items() if _ANN_KEYS[key] is not None}
        if named.get("ann") == "flat":
            named["ann"] = "none"
        if twice := named.keys() & rest.keys():
            raise ValueError(f"{min(twice)!r} stands in 'ann_index_config' too; give it once")
        return rest | named

    @field_validator("text_fields")
    @classmethod
    def _refuse_text_fields(cls, text_fields: Any) -> None:
        if text_fields is not None:
            raise ValueError("use 'fields'")

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str | None) -> str | None:
        if model is not None and not (model and is_storable(model)):
            raise ValueError("a model's name is text without NUL and lone surrogates")
        return model

    @field_validator("embed")
    @classmethod
    def _check_embed(cls, embed: Any) -> Any:
        if isinstance(embed, str) and not (embed.strip() and is_storable(embed)):
            raise ValueError("the model's name is empty, or holds NUL or a lone surrogate")
        return embed

    @field_validator("fields", "words", "weights")
    @classmethod
    def _check_paths(cls, paths: Any) -> Any:
        for path in paths or ():
            check_path(path)
        return paths

    @field_validator("language")
    @classmethod
    def _check_language(cls, language: str | None) -> str | None:
        if language is not None and language not in languages():
            raise ValueError(f"the languages are {', '.join(languages())}")
        return language

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.mode == "hybrid" and self.metric != "cosine":
            raise ValueError(HYBRID_NEEDS_COSINE)
        if self.ef_construction < 2 * self.m:
            raise ValueError("'ef_construction' is at least twice 'm'")
        if self.mode != "lexical" and self.embed is None:
            raise ValueError(
                "'embed' is missing: an Embeddings, a function or a model's name; only mode 'lexical' does without"
            )
        return self

    @property
    def ranking(self) -> Mode:
        """How a search ranks unless it says otherwise."""
        return self.mode or ("hybrid" if self.metric == "cosine" else "semantic")

    @property
    def paths(self) -> tuple[str, ...]:
        """What is embedded of a value unless a put says otherwise."""
        return (WHOLE_VALUE,) if self.fields is None else tuple(self.fields)


_ANN_KEYS: Final[dict[str, Any]] = {
    "kind": "ann", "vector_type": "vector_type", "m": "m", "ef_construction": "ef_construction", "nlist": None,
}  # fmt: skip


class PoolSettings(_Parsed):
    """Connections to Postgres: a pool for threads, and one for each event loop. Times are in seconds."""

    min_size: int = Field(default=1, ge=0)
    """Connections kept open."""
    max_size: int = Field(default=10, ge=1)
    """Connections at most; further calls wait for their turn, however long."""
    timeout: Positive = 30.0
    """How long a call waits for a server that cannot be reached."""
    connect_timeout: int = Field(default=10, ge=1)
    """How long one attempt to connect may take."""
    statement_timeout: Positive | None = None
    """How long the server may work on one statement."""
    lock_timeout: Positive | None = 60.0
    """How long a write waits for others in the same namespaces."""
    max_idle: Positive = 600.0
    """How long a connection beyond `min_size` is kept unused."""
    max_lifetime: Positive = 3600.0
    """How long a connection is used before it is replaced."""
    prepare: bool | None = None
    """Whether statements are prepared; where it is None, unless a connection pooler stands between."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """More parameters of libpq, such as `sslmode`."""

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.min_size > self.max_size:
            raise ValueError("'min_size' is at most 'max_size'")
        return self


class TTLSettings(_Parsed):
    """LangGraph's `TTLConfig`; all times are in minutes, fractions kept."""

    default_ttl: Positive | None = None
    refresh_on_read: bool = True
    sweep_interval_minutes: Positive | None = None
    omit_expired: bool = True

    def to_config(self) -> dict[str, Any]:
        """Give LangGraph's `TTLConfig`."""
        return self.model_dump()

    @field_validator("omit_expired")
    @classmethod
    def _check_omit(cls, omit: bool) -> bool:
        if not omit:
            raise ValueError("expired items are never shown; leave it out or set it to True")
        return omit


class Retention(_Parsed):
    """Which checkpoints are kept; what is None limits nothing."""

    keep_last: int | None = Field(default=None, ge=1)
    """How many of each thread and namespace, the newest; and those that they need."""
    max_age: Positive | None = None
    """Minutes after its last checkpoint for which a thread is kept."""
    sweep_interval_minutes: Positive | None = None
    """Minutes between sweeps; None where they are left to the caller."""


def to_number(given: Any) -> float | None:
    """Read a number of any kind; None for anything else, a truth value too."""
    kind: Any = Real
    if isinstance(given, bool) or not isinstance(given, kind):
        return None
    try:
        return float(given)
    except OverflowError:
        return math.inf if given > 0 else -math.inf


def to_whole(given: Any) -> int | None:
    """Read a whole number of any kind; None for anything else, a truth value too."""
    kind: Any = Integral
    return None if isinstance(given, bool) or not isinstance(given, kind) else int(given)


def is_share(given: Any) -> bool:
    """Tell whether something is a part of a score: more than 0 and at most 1."""
    number = to_number(given)
    return number is not None and 0 < number <= 1


def check_mode(mode: Any) -> Mode | None:
    """Check how a search is to rank; None leaves it to the store.

    Raises:
        InvalidArgument: There is no such mode.
    """
    if mode is not None and mode not in get_args(Mode):
        raise InvalidArgument(f"mode is one of {', '.join(map(repr, get_args(Mode)))}")
    checked: Mode | None = mode
    return checked


def check_path(path: object) -> str:
    """Check the path of a field to embed.

    Raises:
        ValueError: It is no text, or empty.
    """
    if not isinstance(path, str) or not is_storable(path) or not tokenize_path(path):
        raise ValueError("a field is a path such as 'text', 'a.b', 'a[*].b' or '$'")
    return path
