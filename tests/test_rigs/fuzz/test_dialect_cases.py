"""Bombs are too long wherever they are cut, so that nothing but 413 may answer one that is looked at."""

import pytest

from rigs.fuzz.dialect_cases import CODINGS, MAX_CUT, TOO_LONG, bomb, bomb_cases
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
