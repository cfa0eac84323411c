"""What `/readyz` shows, however much there is to say."""

import orjson
from builders import a_policy

from understudy.core.routing.policy import PolicySnapshot
from understudy.entrypoints.proxy.control.read_models import MAX_NAMED, MAX_REASON, readiness
from understudy.serving.upstream.champion_health import NONE_ANSWERS, ChampionHealth

REACHED = ChampionHealth(is_reachable=True, asked=0)


def test_of_thousands_of_rejected_models_some_are_named_and_all_are_counted():
    rejected = {f"model-{n}": "its input schema is wrong; " * 100 for n in range(10_000)}
    snapshot = PolicySnapshot({"visits": a_policy()}, rejected=rejected)

    is_ready, detail = readiness(snapshot, REACHED, degraded=False, age_seconds=0.1)

    assert is_ready
    assert (len(detail["rejected"]), detail["rejected_models"]) == (MAX_NAMED, 10_000)
    assert {len(why) for why in detail["rejected"].values()} == {MAX_REASON}
    assert len(orjson.dumps(detail)) < 10_000


def test_without_an_answer_it_says_how_many_were_asked_in_time():
    snapshot = PolicySnapshot({name: a_policy(model_name=name) for name in ("a", "b", "c")})

    some, every = (
        readiness(snapshot, NONE_ANSWERS._replace(asked=asked), degraded=False, age_seconds=0.1)[1]["detail"]
        for asked in (2, 3)
    )

    assert some == "2 of 3 champions were checked in time and none answers; the next check goes on"
    assert every == "no champion's model server answers"
