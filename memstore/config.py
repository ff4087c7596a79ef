"""What a user configures, parsed once at the door into typed, frozen models.

The names are LangGraph's (`IndexConfig`, `TTLConfig`) with memstore's own beside them; an unknown one is named in the
error, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, get_args

from langgraph.store.base import tokenize_path
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from memstore.analysis import languages
from memstore.errors import InvalidArgument, InvalidConfig
from memstore.indexes import Metric
from memstore.namespaces import is_storable

Mode: TypeAlias = Literal["hybrid", "semantic", "lexical"]
"""How a search ranks: by meaning and words together, by meaning alone, by words alone."""
HYBRID_NEEDS_COSINE: Final = "hybrid ranks by the cosine; choose metric 'cosine' or mode 'semantic'"
WHOLE_VALUE = "$"
"""The path of the whole value, embedded as JSON text."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


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
    cache_mb: Positive = 256.0
    """Memory for the vectors and terms of recently searched namespaces, in MB (10^6 bytes)."""
    ann_index_config: Any = None
    pool_config: Any = None
    """LangGraph's spellings for Postgres, accepted so that a config can be shared."""

    text_fields: Any = None

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

    @field_validator("fields")
    @classmethod
    def _check_fields(cls, fields: list[str] | None) -> list[str] | None:
        for path in fields or ():
            check_path(path)
        return fields

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
