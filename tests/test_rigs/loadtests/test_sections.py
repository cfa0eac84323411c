from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from loadtests import bench, plain_body
from loadtests.peers import PEERS
from loadtests.pieces import ours, plain
from loadtests.plain_body import FEATURES
from understudy.core.routing.route import bucket_of

FOLDER = Path(bench.__file__).parent


def test_every_section_is_run_and_has_a_name_of_its_own():
    defining = [path for path in FOLDER.glob("*.py") if "\nSECTION = Section(" in path.read_text()]

    assert len(bench.SECTIONS) == len(defining)
    assert all(name == section.name for name, section in bench.SECTIONS.items())


def test_every_section_is_compared_or_says_why_it_is_left_out():
    assert all(section.compare is not None or section.left_out for section in bench.SECTIONS.values())


def test_every_peer_has_a_program_and_locked_requirements():
    for name, peer in PEERS.items():
        kind = peer.python.parts[-4].removeprefix(".venv-")
        assert (FOLDER / "peer_servers" / peer.script).is_file()
        assert (FOLDER.parent / "requirements" / f"{kind}-{name}.txt").is_file()


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_the_plain_way_finds_the_products_bucket(model, entity_id):
    assert plain_body.bucket_of(model, entity_id) == bucket_of(model, entity_id)


@given(st.lists(st.floats(0, 1, width=32), min_size=len(FEATURES), max_size=len(FEATURES)))
def test_both_ways_make_the_same_tensor_of_a_body(values):
    body = orjson.dumps({"entity_id": "someone", "inputs": dict(zip(FEATURES, values, strict=True))})

    assert ours(body)[::2] == plain(body)[::2]
