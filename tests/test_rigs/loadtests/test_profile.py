"""The arithmetic of the profile: whose a sample is, what a stage costs, and what the picture shows of it."""

from xml.etree import ElementTree as ET

import pytest

from loadtests.profile import OTHER, OTHER_THREADS, STAGES, Share, function_of, picture_of, profile_of, stage_of

SRC = "/x/src/understudy"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (
            [f"{SRC}/core/requests/strict_json.py:Some.name", f"{SRC}/entrypoints/proxy/predict/handler.py:Some.name"],
            "parse the body",
        ),
        ([f"{SRC}/entrypoints/proxy/server/connection.py:Some.name"], "HTTP: read and write"),
        ([f"{SRC}/entrypoints/proxy/predict/handler.py:Some.name"], "headers, receipt, answer"),
        (
            ["/usr/lib/python3.11/enum.py:Some.name", f"{SRC}/serving/turn.py:Some.name"],
            "route, ids, the request's story",
        ),
        (["/usr/lib/python3.11/queue.py:Some.name"], OTHER),
        ([], OTHER),
    ],
)
def test_a_sample_belongs_to_its_innermost_function_that_has_a_stage(stack, stage):
    assert stage_of(stack) == stage


def test_the_stages_together_are_the_whole_request_and_the_dearest_comes_first():
    samples = {
        f"{SRC}/adapters/disk/spool.py:Spool.append;{SRC}/serving/turn.py:end": 30,
        f"{SRC}/core/schema/schema.py:check": 60,
        "/x/other.py:f": 10,
    }

    profile = profile_of(samples, main_us=50.0, others_us=8.0)

    assert profile.stages == [
        Share("check, pack, hash the inputs", 30.0),
        Share("log row and spool", 15.0),
        Share(OTHER_THREADS, 8.0),
        Share(OTHER, 5.0),
    ]


def test_the_main_threads_time_is_divided_among_its_innermost_functions():
    samples = {
        f"{SRC}/core/schema/schema.py:check;{SRC}/serving/turn.py:begin": 25,
        f"{SRC}/core/schema/schema.py:check;{SRC}/serving/turn.py:end": 25,
        f"{SRC}/serving/turn.py:end": 50,
    }

    profile = profile_of(samples, main_us=40.0, others_us=8.0)

    assert sorted(profile.functions) == [Share("core/schema/schema.py:check", 20.0), Share("serving/turn.py:end", 20.0)]


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (f"{SRC}/serving/turn.py:Turn.end", "serving/turn.py:Turn.end"),
        ("/x/.venv/lib/python3.11/site-packages/grpc/aio/_call.py:Call.code", "grpc/aio/_call.py:Call.code"),
        (
            "/usr/lib/python3.11/asyncio/base_events.py:BaseEventLoop.call_soon",
            "asyncio/base_events.py:BaseEventLoop.call_soon",
        ),
        ("<string>:<lambda>", "<string>:<lambda>"),
    ],
)
def test_a_function_is_shown_with_as_much_of_its_path_as_tells_it_apart(function, shown):
    assert function_of([function]) == shown


def test_the_picture_has_each_stage_in_both_bars_at_its_own_size():
    shares = [Share(stage, 10.0 + place) for place, stage in enumerate(STAGES)]

    picture = ET.fromstring(picture_of(shares, "A call < 100 µs"))

    widths = [float(one.get("width", "0")) for one in picture.iter(f"{SVG}rect")][1:]
    together, single = widths[: len(shares)], widths[len(shares) :]
    texts = [one.text for one in picture.iter(f"{SVG}text")]
    assert sum(together) == pytest.approx(760, abs=1)
    assert single == sorted(single)
    assert [stage for stage in STAGES if stage not in texts] == []
    assert texts[0] == "A call < 100 µs"
