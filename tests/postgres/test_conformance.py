"""Every rule of the contract on Postgres, through the classes that SQLite passes."""

from __future__ import annotations

from tests.conformance.batches import BatchesConformance
from tests.conformance.concurrency import ConcurrencyConformance
from tests.conformance.fields import FieldsConformance
from tests.conformance.filter_keys import FilterKeysConformance
from tests.conformance.filter_laws import FilterLawsConformance
from tests.conformance.filters import FiltersConformance
from tests.conformance.indexing import IndexingConformance
from tests.conformance.lifecycle import LifecycleConformance
from tests.conformance.listing import ListingConformance
from tests.conformance.modes import ModesConformance
from tests.conformance.modes_words import SharedModesConformance
from tests.conformance.names import NamesConformance
from tests.conformance.put_many import PutManyConformance
from tests.conformance.put_many_beside import PutManyBesideConformance
from tests.conformance.refusals import RefusalsConformance
from tests.conformance.remembering import RememberingConformance, RememberingWordsConformance
from tests.conformance.scores import ScoresConformance
from tests.conformance.search import SearchConformance
from tests.conformance.sharing import SharingConformance
from tests.conformance.sweeping import SweeperConformance, SweepingConformance
from tests.conformance.times import TimesConformance
from tests.conformance.ttl import ExpiryRacesConformance, TtlConformance
from tests.conformance.values import ValuesConformance


class TestBatches(BatchesConformance):
    """All or nothing."""


class TestPutMany(PutManyConformance):
    """Batches, in order."""


class TestPutManyBeside(PutManyBesideConformance):
    """One is embedded, another written."""


class TestConcurrency(ConcurrencyConformance):
    """Cancelling, threads and event loops."""


class TestFilters(FiltersConformance):
    """Operators, case by case."""


class TestFilterKeys(FilterKeysConformance):
    """Which keys filters reach, and which filters are refused."""


class TestFilterLaws(FilterLawsConformance):
    """Filters against plain Python."""


class TestIndexing(IndexingConformance):
    """Texts and their vectors."""


class TestFields(FieldsConformance):
    """What is embedded of a value."""


class TestRemembering(RememberingConformance):
    """What the database knows of its model."""


class TestRememberingWords(RememberingWordsConformance):
    """What the database knows of its words."""


class TestLifecycle(LifecycleConformance):
    """Opening and closing."""


class TestSharing(SharingConformance):
    """Several stores on one file."""


class TestNames(NamesConformance):
    """Namespaces and keys."""


class TestListing(ListingConformance):
    """Listing namespaces."""


class TestSearch(SearchConformance):
    """Pages, order and scope."""


class TestScores(ScoresConformance):
    """Scores by meaning."""


class TestModes(ModesConformance):
    """Ranking by words, and by both."""


class TestSharedModes(SharedModesConformance):
    """Several stores on one file."""


class TestTtl(TtlConformance):
    """Living, reading, expiring."""


class TestExpiryRaces(ExpiryRacesConformance):
    """Expiring in the middle of a call."""


class TestSweeping(SweepingConformance):
    """What a sweep takes."""


class TestSweeper(SweeperConformance):
    """The thread that sweeps."""


class TestValues(ValuesConformance):
    """Values that are kept."""


class TestRefusals(RefusalsConformance):
    """Values that are refused."""


class TestTimes(TimesConformance):
    """When items were made and changed."""
