"""Token buckets."""

from latencyprobe_operator.directory.limits import Bucket


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_bucket_gives_its_burst_at_once_and_its_rate_from_then_on() -> None:
    clock = Clock()
    bucket = Bucket(per_s=2, burst=5, clock=clock)
    assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]
    clock.now_s = 1.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_bucket_never_holds_more_than_its_burst() -> None:
    clock = Clock()
    bucket = Bucket(per_s=2, burst=5, clock=clock)
    clock.now_s = 1000.0
    assert [bucket.take() for _ in range(6)].count(True) == 5


def test_looking_takes_nothing() -> None:
    bucket = Bucket(per_s=2, burst=1, clock=Clock())
    assert [bucket.empty(), bucket.empty(), bucket.take(), bucket.empty()] == [False, False, True, True]
