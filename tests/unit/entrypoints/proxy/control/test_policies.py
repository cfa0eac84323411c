"""The generation of a policy that a caller changes: one ETag in ``If-Match``."""

import pytest

from understudy.entrypoints.proxy.control.policies import read_generation
from understudy.errors import GenerationNotNamed, HeaderInvalid


@pytest.mark.parametrize(("header", "generation"), [('"0"', 0), ('"41"', 41), (' "41" ', 41)])
def test_a_generation_is_an_etag(header, generation):
    assert read_generation(header) == generation


@pytest.mark.parametrize("header", ["", "41", "*", 'W/"41"', '"41", "42"', '""', '"4é"', '"' + "9" * 19 + '"', '"-1"'])
def test_whatever_is_no_single_etag_is_refused(header):
    with pytest.raises(HeaderInvalid, match="if-match"):
        read_generation(header)


def test_a_change_without_a_generation_is_refused():
    with pytest.raises(GenerationNotNamed):
        read_generation(None)
