"""Bombs are too long wherever they are cut, so that nothing but 413 may answer one that is looked at."""

import pytest

from rigs.fuzz.bombs import (
    CODINGS,
    GRPC_TOO_LONG,
    MAX_CUT,
    METHODS,
    PATHS,
    TOO_LONG,
    bomb,
    bomb_cases,
    grpc_bomb_cases,
    over_http_of,
)
from rigs.fuzz.drawing import draw
from understudy.entrypoints.proxy.dialects.compression import inflated
from understudy.errors import BodyTooLarge
from understudy.settings import Settings

LEAST_MIB = 2
LIMIT_BYTES = Settings.model_fields["body_limit_bytes"].default


@pytest.mark.parametrize("cut", [0, 1, MAX_CUT])
@pytest.mark.parametrize("coding", CODINGS)
def test_the_least_bomb_is_too_long_wherever_it_is_cut(coding, cut):
    body = bomb(LEAST_MIB, coding)

    with pytest.raises(BodyTooLarge):
        inflated(body[: -cut or None], coding.encode(), LIMIT_BYTES)


@pytest.mark.deep
def test_only_bombs_among_many_may_be_turned_away():
    alone, many = draw(bomb_cases(), 30, 1), draw(bomb_cases(at_once=True), 30, 1)

    assert {case.expected for case in alone} == {TOO_LONG}
    assert {case.expected for case in many} == {TOO_LONG | {503}}
    assert all(len(case.body) < LIMIT_BYTES for case in [*alone, *many])


@pytest.mark.deep
def test_over_grpc_bombs_are_compressed_messages_that_are_refused_for_their_length():
    alone, many = draw(grpc_bomb_cases(), 30, 1), draw(grpc_bomb_cases(at_once=True), 30, 1)

    assert {case.refused_as for case in alone} == {GRPC_TOO_LONG}
    assert {case.refused_as for case in many} == {GRPC_TOO_LONG | {"E507"}}
    assert {case.coding for case in [*alone, *many]} == set(CODINGS)
    assert {case.path for case in [*alone, *many]} == set(METHODS)


def test_each_dialect_gets_as_many_bombs():
    assert over_http_of(100) == 100 * len(PATHS) // (len(PATHS) + len(METHODS)) == 60
