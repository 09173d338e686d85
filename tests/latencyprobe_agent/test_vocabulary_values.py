"""What the kernel's words mean: each has its meaning, and the shared reasons are the kernel's own."""

from latencyprobe import exclusions
from latencyprobe_agent.vocabulary import values
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Lost, Outcome


def test_every_word_of_the_kernel_is_explained_once() -> None:
    assert set(ExchangeClass) == set(values.CLASSES)
    assert set(ExchangeFlags) == set(values.FLAGS)
    assert {*Outcome} - {Outcome.OK} == set(values.ERRORS)
    assert set(Lost) == set(values.LOST)
    assert {*Excluded} - {Excluded.NONE} == set(values.EXCLUSIONS)
    assert len(exclusions.ALL) == len(values.EXCLUSIONS) == len(exclusions.BY_NAME)
    for meanings in (values.CLASSES.values(), values.FLAGS.values(), values.ERRORS.values()):
        assert len(set(meanings)) == len(meanings)


def test_a_turn_that_may_hide_an_rpc_is_ambiguous_and_no_other() -> None:
    ambiguous = {Excluded.PIPELINED, Excluded.MULTIPLEXED, Excluded.OVERLAP, Excluded.PUSH, Excluded.STREAMING}
    ambiguous |= {Excluded.OUT_OF_STEP}
    assert ambiguous == set(values.AMBIGUOUS)


def test_who_ended_it_is_told_by_the_error() -> None:
    assert "unanswered" == values.ERRORS[Outcome.UNANSWERED].type
    assert "aborted" == values.ERRORS[Outcome.ABORTED].type
