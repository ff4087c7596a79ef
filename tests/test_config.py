"""What a user configures: every key that is taken, every one that is refused, and with which words."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import ValidationError

from memstore import MemStore
from memstore.backends import to_backend
from memstore.config import IndexSettings, TTLSettings, check_mode, check_path
from memstore.errors import InvalidArgument, InvalidConfig
from tests.support import WordEmbeddings

INDEX_TAKEN: list[tuple[dict[str, Any], str, Any]] = [
    ({"embed": len}, "embed", len),
    ({"dims": 4}, "dims", 4),
    ({"dims": None}, "dims", None),
    ({"fields": ["a", "b[*].c"]}, "paths", ("a", "b[*].c")),
    ({"fields": ["$"]}, "paths", ("$",)),
    ({"fields": []}, "paths", ()),
    ({"fields": None}, "paths", ("$",)),
    ({"metric": "l2"}, "metric", "l2"),
    ({"metric": "inner_product"}, "metric", "inner_product"),
    ({"distance_type": "l2"}, "metric", "l2"),
    ({"distance_type": "cosine"}, "metric", "cosine"),
    ({"model": "mine"}, "model", "mine"),
    ({"mode": "semantic"}, "ranking", "semantic"),
    ({"mode": "hybrid"}, "ranking", "hybrid"),
    ({"mode": "lexical", "embed": None}, "ranking", "lexical"),
    ({"mode": "lexical", "metric": "l2"}, "ranking", "lexical"),
    ({"mode": None}, "ranking", "hybrid"),
    ({"metric": "l2"}, "ranking", "semantic"),
    ({"language": "german"}, "language", "german"),
    ({"language": None}, "language", None),
    ({"exact_below": 0}, "exact_below", 0),
    ({"candidates": 1}, "candidates", 1),
    ({"cache_mb": 1}, "cache_mb", 1.0),
    ({"cache_mb": 0.5}, "cache_mb", 0.5),
    ({"ann_index_config": {"kind": "hnsw", "m": 8, "ef_construction": 40}}, "m", 8),
    ({"ann_index_config": {"kind": "ivfflat", "nlist": 100}}, "ann", "ivfflat"),
    ({"ann_index_config": {"kind": "flat"}}, "ann", "none"),
    ({"ann_index_config": {"vector_type": "halfvec"}}, "vector_type", "halfvec"),
    ({"ann_index_config": None}, "ann", "auto"),
    ({"ann": "none"}, "ann", "none"),
    ({"ef_search": 1000}, "ef_search", 1000),
    ({"pool_config": {"max_size": 3}}, "metric", "cosine"),
    ({"text_fields": None}, "paths", ("$",)),
]


@pytest.mark.parametrize(("given", "name", "expected"), INDEX_TAKEN, ids=repr)
def test_index_keys_that_are_taken(given: dict[str, Any], name: str, expected: Any) -> None:
    """LangGraph's names, memstore's own, and LangGraph's spellings for Postgres."""
    assert getattr(IndexSettings.parse({"embed": len, **given}, "index"), name) == expected


def test_index_settings_have_stated_defaults() -> None:
    """What is left out is hybrid by cosine over the whole value in English, exact to 20,000 texts, in 256 MB."""
    settings = IndexSettings.parse({"embed": len}, "index")
    assert (settings.metric, settings.ranking, settings.cache_mb) == ("cosine", "hybrid", 256.0)
    assert (settings.dims, settings.model, settings.paths) == (None, None, ("$",))
    assert (settings.mode, settings.language, settings.exact_below, settings.candidates) == (None, None, 20_000, 1_000)


A_FIELD = "a field is a path such as 'text', 'a.b', 'a[*].b' or '$'"
INDEX_REFUSED: list[tuple[Any, str]] = [
    ([], "index is a dict, got list"),
    ("all-MiniLM-L6-v2", "index is a dict, got str"),
    ({"metric": "euclidean"}, "index['metric']: Input should be 'cosine', 'l2' or 'inner_product'"),
    ({"distance_type": "euclidean"}, "index['distance_type']: Input should be 'cosine', 'l2' or 'inner_product'"),
    ({"dims": 0}, "index['dims']: Input should be greater than 0"),
    ({"dims": True}, "index['dims']: Input should be a valid integer"),
    ({"dims": "384"}, "index['dims']: Input should be a valid integer"),
    ({"dims": 384.0}, "index['dims']: Input should be a valid integer"),
    ({"fields": "text"}, "index['fields']: Input should be a valid list"),
    ({"fields": ("text",)}, "index['fields']: Input should be a valid list"),
    ({"fields": [1]}, "index['fields.0']: Input should be a valid string"),
    ({"fields": [""]}, f"index['fields']: {A_FIELD}"),
    ({"fields": ["text", "."]}, f"index['fields']: {A_FIELD}"),
    ({"text_fields": ["text"]}, "index['text_fields']: use 'fields'"),
    ({"model": 1}, "index['model']: Input should be a valid string"),
    ({"mode": "fuzzy"}, "index['mode']: Input should be 'hybrid', 'semantic' or 'lexical'"),
    ({"mode": "hybrid", "metric": "l2"}, ": hybrid ranks by the cosine; choose metric 'cosine' or mode 'semantic'"),
    ({"mode": "hybrid", "distance_type": "inner_product"}, ": hybrid ranks by the cosine"),
    ({"embed": None}, ": 'embed' is missing"),
    ({"embed": None, "mode": "semantic"}, ": 'embed' is missing"),
    ({"embed": None, "mode": "hybrid"}, ": 'embed' is missing"),
    ({"language": "klingon"}, "index['language']: the languages are "),
    ({"language": ""}, "index['language']: the languages are "),
    ({"language": "English"}, "index['language']: the languages are "),
    ({"exact_below": -1}, "index['exact_below']: Input should be greater than or equal to 0"),
    ({"exact_below": 2.5}, "index['exact_below']: Input should be a valid integer"),
    ({"candidates": 0}, "index['candidates']: Input should be greater than or equal to 1"),
    ({"candidates": True}, "index['candidates']: Input should be a valid integer"),
    ({"cache_mb": 0}, "index['cache_mb']: Input should be greater than 0"),
    ({"cache_mb": float("inf")}, "index['cache_mb']: Input should be a finite number"),
    ({"ann": "annoy"}, "index['ann']: Input should be 'auto', 'hnsw', 'ivfflat' or 'none'"),
    ({"m": 1}, "index['m']: Input should be greater than or equal to 2"),
    ({"m": 40}, ": 'ef_construction' is at least twice 'm'"),
    ({"ef_search": 1001}, "index['ef_search']: Input should be less than or equal to 1000"),
    ({"vector_type": "bit"}, "index['vector_type']: Input should be 'vector' or 'halfvec'"),
    ({"ann_index_config": {"kind": "hnsw", "lists": 3}}, ": 'ann_index_config' takes kind, vector_type, m,"),
    ({"ann_index_config": {"kind": "hnsw"}, "ann": "hnsw"}, ": 'ann' stands in 'ann_index_config' too"),
    ({"dim": 4}, "index has no key 'dim'; did you mean 'dims'?"),
    ({"embedding": len}, "index has no key 'embedding'; did you mean 'embed'?"),
    ({"xyz": 1}, "index has no key 'xyz'; it takes embed, dims, fields, metric, model, mode, language, "),
    ({1: 2}, "index['1']: Keys should be strings"),
]


@pytest.mark.parametrize(("given", "message"), INDEX_REFUSED, ids=repr)
def test_index_keys_that_are_refused(given: Any, message: str) -> None:
    """The message names the key and what is expected, never the value; an unknown key is never ignored."""
    with pytest.raises(InvalidConfig) as caught:
        IndexSettings.parse({"embed": len, **given} if isinstance(given, dict) else given, "index")
    message = f"index{message}" if message.startswith(":") else message
    assert str(caught.value).startswith(f"The store cannot be configured so: {message}")


@pytest.mark.parametrize("given", [{"fields": ["\ud800"]}, {"model": "\ud800"}], ids=repr)
def test_names_that_cannot_be_stored_are_refused_at_the_door(given: dict[str, Any]) -> None:
    """Fields and the model's name are remembered in the database; what it cannot keep is a setting's fault."""
    with pytest.raises(InvalidConfig, match=next(iter(given))):
        MemStore.open(":memory:", index={"embed": WordEmbeddings(), **given}).close()


def test_both_spellings_of_the_metric_are_one_too_many() -> None:
    """The message says so; it does not call LangGraph's own key unknown."""
    with pytest.raises(InvalidConfig) as caught:
        IndexSettings.parse({"metric": "l2", "distance_type": "l2"}, "index")
    assert "has no key" not in str(caught.value)


def test_any_mapping_is_taken() -> None:
    """A `TypedDict` is a dict; other mappings are read once, and later changes to them change nothing."""
    given = {"dims": 4, "mode": "lexical"}
    settings = IndexSettings.parse(MappingProxyType(given), "index")
    given["dims"] = 5
    assert settings.dims == 4


def test_settings_are_frozen() -> None:
    """They are parsed once at the door and never change afterwards."""
    with pytest.raises(ValidationError):
        IndexSettings.parse({"embed": len}, "index").dims = 3


TTL_TAKEN: list[tuple[dict[str, Any], str, Any]] = [
    ({}, "default_ttl", None),
    ({"default_ttl": 5}, "default_ttl", 5.0),
    ({"default_ttl": 0.25}, "default_ttl", 0.25),
    ({"default_ttl": None}, "default_ttl", None),
    ({}, "refresh_on_read", True),
    ({"refresh_on_read": False}, "refresh_on_read", False),
    ({"sweep_interval_minutes": 1}, "sweep_interval_minutes", 1.0),
    ({"sweep_interval_minutes": None}, "sweep_interval_minutes", None),
    ({"omit_expired": True}, "omit_expired", True),
]


@pytest.mark.parametrize(("given", "name", "expected"), TTL_TAKEN, ids=repr)
def test_ttl_keys_that_are_taken(given: dict[str, Any], name: str, expected: Any) -> None:
    """LangGraph's names; times are minutes, fractions kept, and reads refresh unless that is turned off."""
    assert getattr(TTLSettings.parse(given, "ttl"), name) == expected


TTL_REFUSED: list[tuple[Any, str]] = [
    ([1], "ttl is a dict, got list"),
    (5, "ttl is a dict, got int"),
    ({"default_ttl": 0}, "ttl['default_ttl']: Input should be greater than 0"),
    ({"default_ttl": -1}, "ttl['default_ttl']: Input should be greater than 0"),
    ({"default_ttl": True}, "ttl['default_ttl']: Input should be a valid number"),
    ({"default_ttl": "5"}, "ttl['default_ttl']: Input should be a valid number"),
    ({"default_ttl": float("nan")}, "ttl['default_ttl']: Input should be a finite number"),
    ({"refresh_on_read": 1}, "ttl['refresh_on_read']: Input should be a valid boolean"),
    ({"refresh_on_read": None}, "ttl['refresh_on_read']: Input should be a valid boolean"),
    ({"sweep_interval_minutes": 0}, "ttl['sweep_interval_minutes']: Input should be greater than 0"),
    ({"omit_expired": False}, "ttl['omit_expired']: expired items are never shown; leave it out or set it to True"),
    ({"default": 5}, "ttl has no key 'default'; did you mean 'default_ttl'?"),
    ({"xyz": 5}, "ttl has no key 'xyz'; it takes default_ttl, refresh_on_read, sweep_interval_minutes, omit_expired"),
]


@pytest.mark.parametrize(("given", "message"), TTL_REFUSED, ids=repr)
def test_ttl_keys_that_are_refused(given: Any, message: str) -> None:
    """The message names the key and what is expected."""
    with pytest.raises(InvalidConfig) as caught:
        TTLSettings.parse(given, "ttl")
    assert str(caught.value) == f"The store cannot be configured so: {message}"


def test_a_store_shows_its_ttl_as_langgraph_does() -> None:
    """`ttl_config` is None without `ttl`, else a whole `TTLConfig`: LangGraph's `put` reads the default from it."""
    assert MemStore.from_conn_string(":memory:").ttl_config is None
    shown = MemStore.from_conn_string(":memory:", ttl={"default_ttl": 5}).ttl_config
    assert shown == {"default_ttl": 5, "refresh_on_read": True, "sweep_interval_minutes": None, "omit_expired": True}


@pytest.mark.parametrize("ttl", [[], "", 0])
def test_an_empty_ttl_of_another_kind_is_refused(ttl: Any) -> None:
    """What is no dict is refused whether it is empty or not."""
    with pytest.raises(InvalidConfig, match="ttl is a dict"):
        MemStore.from_conn_string(":memory:", ttl=ttl)


def test_a_store_s_index_needs_an_embedding() -> None:
    """An index without `embed` is refused where it was written, not at the first put; ranking by words needs none."""
    with pytest.raises(InvalidConfig, match="'embed' is missing"):
        MemStore.from_conn_string(":memory:", index={"dims": 4})
    MemStore.from_conn_string(":memory:", index={"mode": "lexical"}).close()


def test_a_store_s_index_can_be_read_before_it_is_opened() -> None:
    """`index_config` and `embeddings` are attributes on LangGraph's stores; without an index both are None."""
    words = WordEmbeddings(8)
    index = {"embed": words, "dims": 8, "fields": ["text"]}
    store = MemStore.from_conn_string(":memory:", index=index)
    assert (store.index_config, store.embeddings) == (index, words)
    with store:
        assert (store.index_config, store.embeddings) == (index, words)
    plain = MemStore.from_conn_string(":memory:")
    assert (plain.index_config, plain.embeddings) == (None, None)
    with plain:
        assert (plain.index_config, plain.embeddings) == (None, None)


def test_a_refused_store_leaves_nothing_to_close(tmp_path: Path) -> None:
    """No file is made and nothing warns when the settings are wrong."""
    with pytest.raises(InvalidConfig):
        MemStore.open(tmp_path / "memories.db", index={"embed": WordEmbeddings(), "dims": 0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [None, "hybrid", "semantic", "lexical"])
def test_modes_that_there_are(mode: str | None) -> None:
    """None leaves it to the store."""
    assert check_mode(mode) == mode


@pytest.mark.parametrize("mode", ["fuzzy", "Hybrid", "", 1, ["semantic"], {}])
def test_modes_that_there_are_not(mode: Any) -> None:
    """The message lists those there are."""
    with pytest.raises(InvalidArgument, match="mode is one of 'hybrid', 'semantic', 'lexical'"):
        check_mode(mode)


@pytest.mark.parametrize("path", ["text", "a.b", "a[*].b", "$", "*", "{a,b}", "é"])
def test_paths_that_are_taken(path: str) -> None:
    """LangGraph's paths, whatever the script."""
    assert check_path(path) == path


@pytest.mark.parametrize("path", ["", ".", "..", None, 1, ["a"], b"a"])
def test_paths_that_are_refused(path: Any) -> None:
    """An empty path would be the whole value by accident."""
    with pytest.raises(ValueError, match="a field is a path such as"):
        check_path(path)


NAMES: list[tuple[Any, str]] = [
    (":memory:", ":memory:"),
    ("memories.db", "memories.db"),
    (Path("a") / "b.db", "a/b.db"),
    ("sqlite:///memories.db", "memories.db"),
    ("sqlite:////tmp/memories.db", "/tmp/memories.db"),  # noqa: S108  nothing is opened
    ("sqlite:///:memory:", ":memory:"),
    ("sqlite:///", ":memory:"),
    ("postgresql://ada:secret@host:6543/db", "postgresql://ada@host:6543/db"),
    ("postgres://ada:secret@host/db", "postgresql://ada@host/db"),
]


@pytest.mark.parametrize(("location", "name"), NAMES, ids=repr)
def test_locations_that_are_taken(location: Any, name: str) -> None:
    """Paths, `:memory:` and SQLAlchemy's `sqlite:///` URLs; nothing is opened yet."""
    backend = to_backend(location)
    assert backend.name == name
    assert not Path(name).exists()


LOCATIONS_REFUSED: list[tuple[str, str]] = [
    ("", "expected a path such as 'memories.db'"),
    ("postgresql://ada:secret@host/db?nonsense=secret", "the URL cannot be read"),
    ("mysql://ada:secret@host/db", "no database has the scheme 'mysql'"),
    ("sqlite://memories.db", "three slashes"),
    ("sqlite:memories.db", "three slashes"),
    ("file:memories.db?mode=ro", "three slashes"),
]


@pytest.mark.parametrize(("location", "message"), LOCATIONS_REFUSED, ids=repr)
def test_locations_that_are_refused(location: str, message: str) -> None:
    """The message says what is taken, and shows no password."""
    with pytest.raises(InvalidConfig, match=message) as caught:
        to_backend(location)
    assert "secret" not in str(caught.value)


POOL_REFUSED: list[tuple[Any, str]] = [
    ({"maxsize": 3}, "pool has no key 'maxsize'; did you mean 'max_size'?"),
    ({"max_size": 0}, "pool['max_size']: Input should be greater than or equal to 1"),
    ({"min_size": 11}, "pool: 'min_size' is at most 'max_size'"),
    ({"timeout": 0}, "pool['timeout']: Input should be greater than 0"),
    ({"prepare": 1}, "pool['prepare']: Input should be a valid boolean"),
]


@pytest.mark.parametrize(("given", "message"), POOL_REFUSED, ids=repr)
def test_pool_keys_that_are_refused(given: Any, message: str) -> None:
    """As those of the index are."""
    with pytest.raises(InvalidConfig, match=re.escape(message)):
        to_backend("postgresql://host/db", pool=given)


@pytest.mark.parametrize("options", [{"schema": "s"}, {"pool": {}}], ids=repr)
def test_settings_of_postgres_are_not_for_files(options: dict[str, Any]) -> None:
    """What would be ignored is refused."""
    with pytest.raises(InvalidConfig, match="are for Postgres"):
        to_backend("memories.db", **options)


@pytest.mark.parametrize("schema", ["", "a\0b", 5])
def test_a_schema_has_a_name(schema: Any) -> None:
    """Any name but none."""
    with pytest.raises(InvalidConfig, match="schema is the name of a schema"):
        to_backend("postgresql://host/db", schema=schema)


def test_a_pool_is_a_dict_or_psycopgs() -> None:
    """Nothing else is taken for one."""
    with pytest.raises(InvalidConfig, match="pool is a dict of settings, or a connection or pool of psycopg's"):
        to_backend("postgresql://host/db", pool=5)
