"""Schemas are proposed from a model's tensors; what it does not tell is asked for by the option that says it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.core.schema.described import DescribedModel, DescribedTensor, contradictions
from understudy.core.schema.proposed import Choices, propose
from understudy.core.schema.tensors import DATATYPES
from understudy.errors import SchemaNotTold

X = DescribedTensor("X", "FP32", (-1, 2))
P = DescribedTensor("probabilities", "FP32", (-1, 2))
LABEL = DescribedTensor("label", "INT64", (-1,))


def a_model(*inputs: DescribedTensor, outputs: tuple[DescribedTensor, ...] = (P,)) -> DescribedModel:
    return DescribedModel("visits.onnx", inputs or (X,), outputs)


def refusal(model: DescribedModel, choices: Choices = Choices()) -> str:  # noqa: B008 - a value that never changes
    with pytest.raises(SchemaNotTold) as refused:
        propose(model, choices)
    return refused.value.detail


def test_a_tensor_of_several_elements_is_one_feature_until_its_columns_are_named():
    whole = propose(a_model())
    named = propose(a_model(), Choices(columns={"": ("age", "ward")}, bounds={"age": (0, 130)}, stored=("ward",)))

    assert whole.input_schema == {"features": [{"name": "X", "dtype": "float32", "shape": [2]}]}
    assert any("--columns X=" in note for note in whole.notes)
    assert named.input_schema == {
        "features": [
            {"name": "age", "dtype": "float32", "min": 0, "max": 130},
            {"name": "ward", "dtype": "float32", "source": "store"},
        ],
        "tensors": [{"name": "X", "features": ["age", "ward"], "shape": [2]}],
    }


def test_a_column_that_is_a_tensor_of_one_value_is_a_single_feature():
    found = propose(a_model(DescribedTensor("age", "FP64", (-1, 1)), DescribedTensor("plan", "BYTES", (-1,))))

    assert found.input_schema == {
        "features": [{"name": "age", "dtype": "float64"}, {"name": "plan", "dtype": "string"}],
        "tensors": [
            {"name": "age", "features": ["age"], "shape": [1]},
            {"name": "plan", "features": ["plan"], "shape": []},
        ],
    }


def test_the_answer_has_what_the_model_says_of_it_and_what_a_person_does():
    chosen = Choices(output="probabilities", score=1, activation="softmax", answer_bounds=(0, 1), labels=("no", "yes"))

    found = propose(a_model(outputs=(LABEL, P)), chosen)

    assert found.output_schema == {
        "tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1, "activation": "softmax",
        "labels": ["no", "yes"], "min": 0, "max": 1,
    }  # fmt: skip
    assert not any("--score" in note or "--activation" in note or "--answer-bounds" in note for note in found.notes)


def test_what_no_model_says_is_named_with_its_option():
    notes = " ".join(propose(a_model()).notes)

    assert all(option in notes for option in ("--columns", "--bounds", "--score", "--activation", "--answer-bounds"))
    assert "entity_id" in notes


def test_a_whole_number_is_no_logit():
    notes = propose(a_model(outputs=(LABEL,))).notes

    assert not any("--activation" in note for note in notes)


@pytest.mark.parametrize(
    ("model", "choices", "words"),
    [
        (a_model(outputs=(LABEL, P)), Choices(), "there is label INT64 [?], probabilities FP32 [?, 2]: --output NAME"),
        (a_model(), Choices(output="score"), "--output NAME"),
        (a_model(X._replace(shape=(-1, -1))), Choices(), "--shape X=SIZES"),
        (a_model(X._replace(shape=None)), Choices(), "does not say the shape of 'X'"),
        (a_model(X._replace(datatype="FP16")), Choices(), "'X' is FP16, which no proxy sends or reads"),
        (a_model(outputs=(P._replace(datatype="a sequence", shape=None),)), Choices(), "'probabilities' is a sequence"),
        (a_model(), Choices(columns={"X": ("age",)}), "--columns names 1 of the 2 elements of 'X'"),
        (a_model(), Choices(columns={"Y": ("age",)}), "--columns: no input 'Y'; there is X"),
        (a_model(), Choices(shapes={"Y": (1,)}), "--shape: no input or output 'Y'"),
        (a_model(), Choices(bounds={"age": (0, 1)}), "--bounds: there is no feature 'age'"),
        (DescribedModel("the model server at a:1", (), ()), Choices(), "the model server at a:1: it says nothing"),
        (DescribedModel("a:1", (X,), ()), Choices(), "a:1: it says nothing of its outputs"),
        (a_model(X, X._replace(datatype="INT64")), Choices(), "it has several inputs called X"),
        (a_model(outputs=(P, P._replace(datatype="INT64"))), Choices(output=P.name), "several outputs called prob"),
        (a_model(X._replace(name="")), Choices(), "it gives an input no name: describe them with --from FILE"),
        (a_model(outputs=(P._replace(name=""), LABEL)), Choices(), "it gives an output no name"),
        (a_model(X._replace(name="x" * 300)), Choices(), "the name of an input has 300 characters, of at most 255"),
    ],
    ids=[
        "outputs", "no such output", "free size", "no shape", "datatype", "map", "columns", "no such input",
        "no such tensor", "no such feature", "says nothing", "says half", "inputs of one name", "outputs of one name",
        "no name", "no name of one", "long name",
    ],
)  # fmt: skip
def test_what_a_person_has_to_choose_is_refused_with_its_option(model, choices, words):
    assert words in refusal(model, choices)


def test_all_that_is_missing_is_named_at_once():
    said = refusal(a_model(X._replace(shape=(-1, -1)), outputs=(LABEL, P)))

    assert "--shape X=SIZES" in said
    assert "--output NAME" in said


def test_a_model_of_thousands_of_tensors_gets_no_message_of_thousands_of_lines():
    many = [X._replace(name=f"input_{number}", datatype="BF16") for number in range(4_000)]

    said = refusal(a_model(*many))
    notes = propose(a_model(*(one._replace(datatype="FP32") for one in many))).notes

    assert said.endswith("'input_7' is BF16, which no proxy sends or reads and 3,992 more")
    assert "so are 3,992 more" in notes
    assert len(notes) < 20


def test_a_size_that_a_person_gives_stands_where_the_model_leaves_it_open():
    found = propose(a_model(X._replace(shape=(-1, -1))), Choices(shapes={"X": (128,)}))

    assert found.input_schema["features"] == [{"name": "X", "dtype": "float32", "shape": [128]}]


def test_a_model_of_one_row_has_no_batch():
    found = propose(a_model(X._replace(shape=(1, 2)), outputs=(P._replace(shape=(1, 2)),)))

    assert found.input_schema == {"features": [{"name": "X", "dtype": "float32", "shape": [1, 2]}], "batch": False}
    assert found.output_schema["shape"] == [1, 2]


_SIZES = st.lists(st.integers(1, 4), max_size=3).map(lambda sizes: (-1, *sizes))
_TENSORS = st.builds(DescribedTensor, st.sampled_from(list("abcdef")), st.sampled_from(sorted(DATATYPES)), _SIZES)


@pytest.mark.deep
@given(st.lists(_TENSORS, min_size=1, max_size=4, unique_by=lambda one: one.name), _TENSORS)
def test_what_is_proposed_compiles_and_contradicts_the_model_in_nothing(inputs, output):
    model = DescribedModel("a model", tuple(inputs), (output,))

    found = propose(model)

    schemas = compile_input_schema(found.input_schema), compile_output_schema(found.output_schema)
    assert contradictions(*schemas, model) == []
    assert [spec.name for spec in schemas[0].tensors] == [one.name for one in inputs]
