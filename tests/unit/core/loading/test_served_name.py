import re

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.served_name import is_served_name, served_name

names = st.text(min_size=1, max_size=300)


@given(names, names)
def test_a_name_is_safe_as_a_folder_and_known_again(model, version):
    name = served_name(model, version)

    assert re.fullmatch(r"[A-Za-z0-9._-]{1,110}", name)
    assert name not in (".", "..")
    assert is_served_name(name)


def test_versions_that_read_alike_have_names_of_their_own():
    alike = [("a/b", "1"), ("a_b", "1"), ("a", "b--1"), ("a--b", "1"), ("a" * 150, "1"), ("a" * 150, "2")]

    assert len({served_name(*one) for one in alike}) == len(alike)


def test_a_person_can_read_it():
    assert served_name("visits", "7").startswith("visits--7--")


def test_what_other_people_loaded_is_not_taken_for_a_name_of_ours():
    assert not any(map(is_served_name, ("visits", "visits--7", "resnet--0123456", "../x--01234567")))
