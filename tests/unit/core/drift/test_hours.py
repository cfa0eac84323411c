"""The classes of an hour."""

from understudy.core.drift.baseline import MAX_CATEGORIES
from understudy.core.drift.hours import class_hour, hour_from_json, hour_to_json


def test_the_classes_of_an_hour_are_counted_by_entity_and_an_answer_without_one_is_null():
    answered = [(f"user-{number}", "pro" if number % 3 else None) for number in range(900)]

    found = class_hour(3_600.0, answered)

    assert (sum(found.bucket_rows), sum(found.bucket_nulls)) == (900, 300)
    assert {name: sum(rows) for name, rows in found.categories.items()} == {"pro": 600}
    assert hour_from_json(3_600.0, hour_to_json(found)) == found


def test_free_text_leaves_no_names_behind_and_every_row_counts():
    told = [(f"user-{number}", f"Dear user {number}, …") for number in range(500)]
    long = [(f"user-{number}", "x" * 200) for number in range(500)]
    many = [(f"user-{number}", f"class-{number % 150}") for number in range(15_000)]

    found = class_hour(0.0, [*told, *long, *many])

    assert sum(found.bucket_rows) == 16_000
    assert len(found.categories) == MAX_CATEGORIES
    assert all(name.startswith("class-") for name in found.categories)


def test_a_class_that_is_known_keeps_its_name_in_an_hour_of_few_answers():
    answered = [("user-1", "pro"), ("user-2", "plus"), *((f"user-{number}", "basic") for number in range(40))]

    found, told = class_hour(0.0, answered), class_hour(0.0, answered, known={"pro"})

    assert set(found.categories) == {"basic"}
    assert set(told.categories) == {"basic", "pro"}
    assert sum(told.bucket_rows) == sum(found.bucket_rows) == 42
