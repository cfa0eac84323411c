import pytest

from understudy.adapters.model_servers.control.triton_config import without_name


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ('name: "visits"\nbackend: "onnxruntime"\n', 'backend: "onnxruntime"\n'),
        ('max_batch_size: 8\nname : \'a\' "b" # both\n, input [{ name: "x" dims: [6] }]', None),
        ('input { name: "x" }\noutput < name: "p" >\nname:"visits"', 'input { name: "x" }\noutput < name: "p" >\n'),
        ('# name: "no"\nparameters { key: "name" value: { string_value: "}name: \\"x\\"" } }', None),
        ("", ""),
    ],
    ids=["first", "in parts", "last", "in comments and texts", "empty"],
)
def test_the_models_own_name_goes_and_every_other_one_stays(config, left):
    found = without_name(config)

    if left is not None:
        assert found == left
    assert found.count('name: "x"') == config.count('name: "x"')
    assert without_name(found) == found


def test_what_comes_after_a_name_in_parts_stays():
    assert without_name("max_batch_size: 8\nname : 'a' \"b\" # both\n, input []") == "max_batch_size: 8\n input []"


def test_a_comment_or_text_that_looks_like_a_name_is_none():
    config = '# name: "no"\nparameters { key: "name" value: { string_value: "}name: \\"x\\"" } }'

    assert without_name(config) == config
