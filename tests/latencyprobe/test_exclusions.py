"""exclusions.py: one table for agent, store, wire and report."""

from latencyprobe import exclusions

# By position the codes that stores hold already. A new reason takes another code; it need not be named here.
STORED = "push streaming overlap pipelined multiplexed oneway teardown setup peer partial tfo unsupported plan own"


def test_codes_in_stores_keep_their_meaning() -> None:
    codes = {exclusion.name: exclusion.code for exclusion in exclusions.ALL}
    assert {name: code for code, name in enumerate(STORED.split())}.items() <= codes.items()
    assert len(set(codes.values())) == len(codes)


def test_a_person_can_tell_the_reasons_apart() -> None:
    assert len(exclusions.ALL) == len({exclusion.word for exclusion in exclusions.ALL})
    assert len(exclusions.ALL) == len({exclusion.meaning for exclusion in exclusions.ALL})


def test_what_lowers_the_coverage_has_a_remedy() -> None:
    assert [] == [exclusion.name for exclusion in exclusions.ALL if exclusion.ambiguous and not exclusion.remedy]
