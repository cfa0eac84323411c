from builders import a_version

from understudy.serving.call_statistics import CallStatistics, VersionStatistics


def test_calls_of_each_version_are_added_up_by_how_they_ended():
    times = iter([100.0, 200.0, 300.0])
    statistics = CallStatistics(lambda: next(times))
    first, second = a_version("1"), a_version("2")

    statistics.add(first, is_good=True, seconds=[0.25, 0.5])
    statistics.add(first, is_good=False, seconds=[1.0])
    statistics.add(second, is_good=True, seconds=[2.0])

    assert statistics.of(first) == VersionStatistics(2, 0.75, 1, 1.0, 200.0)
    assert statistics.of(second) == VersionStatistics(1, 2.0, 0, 0.0, 300.0)


def test_a_version_that_was_never_called_has_zeros():
    assert CallStatistics(lambda: 0.0).of(a_version("1")) == VersionStatistics()
