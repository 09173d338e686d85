import pytest

from benchmarks.directory import Directory
from latencyprobe.plan import NodePlan, Role
from latencyprobe.sli import SliBatch, SliRow


@pytest.fixture
def directory():
    with Directory(NodePlan("bench", 1, "", (), ())) as made:
        yield made


def batch(sequence: int) -> SliBatch:
    return SliBatch("i", sequence, (SliRow("n", "p", "", "o", "h", Role.SERVER, 0, good=9, bad=1),))


def test_a_batch_counts_once_however_often_it_comes(directory):
    assert [directory.take(batch(number)).expected for number in (0, 0, 1)] == [1, 1, 2]
    assert (sum(row.good for row in directory.rows), sum(row.bad for row in directory.rows)) == (18, 2)
