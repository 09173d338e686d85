"""stages.py: one table for store, report, wire and agent."""

from latencyprobe import stages

# By position the codes that stores hold already. A new stage takes another code; it need not be named here.
STORED = """receive read_delay process send wait network client_send client_read_delay server_read_delay server_process
server_send"""


def test_codes_in_stores_keep_their_meaning() -> None:
    codes = {stage.name: stage.code for stage in stages.BY_NAME.values()}
    assert {name: code for code, name in enumerate(STORED.split())}.items() <= codes.items()
    assert len(set(codes.values())) == len(codes)


def test_a_name_means_one_stage_and_no_stage_is_of_nothing() -> None:
    defined = [stage for stage in vars(stages).values() if isinstance(stage, stages.Stage)]
    assert sorted(defined) == sorted(stages.BY_NAME.values())


def test_every_stage_can_be_drawn_in_one_column() -> None:
    assert {1} == {len(stage.glyph) for stage in stages.BY_NAME.values()}
