"""Versions with a defect each, of the artifact, of its schemas or of its server, and what a person is to read of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from understudy.adapters.dev_server.example_models import example_cases, example_version
from worlds.onnx_graph import Graph
from worlds.trained_models import (
    ROWS,
    WORDS,
    Data,
    Trained,
    affine,
    least_squares,
    logistic_fit,
    sigmoid,
    softmax,
    softmax_fit,
)

Edit = Callable[[Graph, str], str]
FEATURES: Final = WORDS[:4]
CASES: Final = 20
FLOAT, DOUBLE, HALF = 1, 11, 10
"""Element types of ONNX."""


def unchanged(_: Graph, value: str) -> str:
    """Return the value as it is."""
    return value


def data() -> Data:
    """Return four features in one tensor, each at least 1 and none with the scale of another."""
    drawn = Data.of(20_190, width=len(FEATURES), layout="packed")
    scales = np.array([10.0, 2_000.0, 3.0, 0.5])
    drawn.x = np.round(1 + scales * np.abs(drawn.rng.normal(0, 1, drawn.x.shape)), 2).astype(np.float32).astype(float)
    return drawn


def schema() -> dict[str, Any]:
    """Return their schema; none may be below 0."""
    bounds = zip(FEATURES, (100, 20_000, 30, 10), strict=True)
    features = [{"name": name, "dtype": "float32", "min": 0, "max": most} for name, most in bounds]
    return {"features": features, "tensors": [{"name": "x", "dtype": "float32", "features": list(FEATURES)}]}


def start(inputs: Edit, dtype: str = "float32") -> tuple[Data, Graph, str, NDArray[np.float64]]:
    """Return a graph with the inputs, edited and then scaled, beside the scaled ones of training."""
    given, graph = data(), Graph()
    x = inputs(graph, graph.input("x", dtype, len(FEATURES)))
    mean, std = given.x.mean(0), given.x.std(0)
    scaled = graph.add("Div", graph.add("Sub", x, graph.constant(mean)), graph.constant(std))
    return given, graph, scaled, (given.x - mean) / std


def binary(
    inputs: Edit = unchanged,
    output: Edit = unchanged,
    *,
    weights_off: float = 0.0,
    squash: str = "Sigmoid",
    dtypes: tuple[str, str] = ("float32", "float32"),
    **said: Any,
) -> Trained:
    """Return a logistic regression with a defect; ``said`` is what its ``output_schema`` says beside."""
    given, graph, x, z = start(inputs, dtypes[0])
    weights, bias = logistic_fit(z, (given.target() > 0).astype(float))
    p = sigmoid(z @ weights + bias).ravel()
    served = weights + weights_off * np.sign(given.rng.normal(0, 1, weights.shape))
    value = output(graph, graph.add(squash, affine(graph, x, served, bias)))
    graph.output(value, "p", dtypes[1], 1)
    said = {"tensor": "p", "dtype": "float32", "shape": [1], **said}
    return Trained("binary", graph, schema(), said, given.cases(p, CASES))


def number(output: Edit = unchanged) -> Trained:
    """Return a regression of a positive number with a defect."""
    given, graph, x, z = start(unchanged)
    weights, bias = least_squares(z, given.target() / 4)
    expected = np.exp(z @ weights + bias).ravel()
    graph.output(output(graph, graph.add("Exp", affine(graph, x, weights, bias))), "y", "float32", 1)
    return Trained("number", graph, schema(), {"tensor": "y", "dtype": "float32"}, given.cases(expected, CASES))


def three_classes(output: Edit = unchanged, size: int = 3, *, named: bool = False, **said: Any) -> Trained:
    """Return a classifier with a defect; its cases expect the scores, or with ``named`` the label."""
    given, graph, x, z = start(unchanged)
    weights, bias = softmax_fit(z, np.argsort(np.argsort(given.target())) * 3 // ROWS, 3)
    p = softmax(z @ weights + bias)
    graph.output(output(graph, graph.add("Softmax", affine(graph, x, weights, bias), axis=1)), "p", "float32", size)
    labels = ["low", "middle", "high"]
    expected = [labels[best] for best in p.argmax(1)] if named else p
    said = {"tensor": "p", "shape": [3], "labels": labels, **said}
    return Trained("three_classes", graph, schema(), said, given.cases(expected, CASES))


def two_outputs(score_index: int) -> Trained:
    """Return a classifier of two classes, of which one is the score."""
    given, graph, x, z = start(unchanged)
    weights, bias = softmax_fit(z, (given.target() > 0).astype(int), 2)
    p = softmax(z @ weights + bias)
    graph.output(graph.add("Softmax", affine(graph, x, weights, bias), axis=1), "p", "float32", 2)
    said = {"tensor": "p", "shape": [2], "score_index": score_index}
    return Trained("two_outputs", graph, schema(), said, given.cases(p[:, 1], CASES))


def grows_when_loaded(mebibytes: int) -> Trained:
    """Return a small file whose weights are made, and kept, when it is loaded."""
    graph, columns = Graph(), mebibytes * 1_048_576 // (4 * 256)
    weights = graph.add("ConstantOfShape", graph.constant([256, columns], "int64"))
    total = graph.add("ReduceSum", graph.add("MatMul", graph.input("x", "float32", 256), weights), keepdims=1)
    graph.output(total, "y", "float32")
    features = [{"name": "x", "dtype": "float32", "shape": [256]}]
    return Trained("large", graph, {"features": features}, {"tensor": "y"}, [{"x": [1.0] * 256, "expected": 0.0}])


class _File(Graph):
    """A file that is there already."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content

    def file(self) -> bytes:
        return self._content


def other_version() -> Trained:
    """Return an example model's cases and schemas beside the file of its next version."""
    first, second = (example_version("visits", number) for number in (1, 2))
    schemas = dict(first.input_schema), dict(first.output_schema)
    return Trained("visits", _File(second.read()), *schemas, example_cases(first))


def renamed_input() -> Trained:
    """Return cases of before a feature was renamed."""
    made = binary()
    made.cases = [json.loads(json.dumps(case).replace('"ward"', '"department"')) for case in made.cases]
    return made


# -- edits of a graph --------------------------------------------------------------------------------------------------


def chosen(*places: int) -> Edit:
    """Return the columns at these places."""
    return lambda graph, value: graph.add("Gather", value, graph.constant(places, "int64"), axis=1)


def cast(*kinds: int) -> Edit:
    """Have each value be of these element types, one after the other."""

    def edit(graph: Graph, value: str) -> str:
        for kind in kinds:
            value = graph.add("Cast", value, to=kind)
        return value

    return edit


def times(factor: float) -> Edit:
    """Multiply each value."""
    return lambda graph, value: graph.add("Mul", value, graph.constant([factor]))


def rounded(graph: Graph, value: str) -> str:
    """Round to two decimals."""
    hundred = graph.constant([100.0])
    return graph.add("Div", graph.add("Round", graph.add("Mul", value, hundred)), hundred)


def logarithm(graph: Graph, value: str) -> str:
    """Leave the target as it was learnt."""
    return graph.add("Log", value)


def nan_at_zero(graph: Graph, x: str) -> str:
    """Add nothing to each value, by a logarithm that 0 has none of."""
    return graph.add("Add", x, graph.add("Mul", graph.add("Log", x), graph.constant([0.0])))


def centred_on_call(graph: Graph, x: str) -> str:
    """Scale by the mean of the call's own rows, as a layer in training mode does."""
    return graph.add("Sub", x, graph.add("ReduceMean", x, axes=[0], keepdims=1))


def reversed_rows(graph: Graph, value: str) -> str:
    """Answer the last row first."""
    starts, ends = graph.constant([-1], "int64"), graph.constant([-(2**31)], "int64")
    return graph.add("Slice", value, starts, ends, graph.constant([0], "int64"), graph.constant([-1], "int64"))


def first_row(graph: Graph, value: str) -> str:
    """Answer each row as the first one."""
    first = graph.add("Gather", value, graph.constant([0], "int64"), axis=0)
    return graph.add("Add", graph.add("Mul", value, graph.constant([0.0])), first)


def away_from_mean(graph: Graph, value: str) -> str:
    """Mix in the other rows of the call."""
    away = graph.add("Sub", value, graph.add("ReduceMean", value, axes=[0], keepdims=1))
    return graph.add("Add", value, graph.add("Mul", away, graph.constant([0.1])))


def noisy(graph: Graph, value: str) -> str:
    """Leave on what was random in training."""
    return graph.add("Add", value, graph.add("RandomNormalLike", value, scale=0.05))


@dataclass(frozen=True)
class Plant:
    """A defect, and how it is found."""

    name: str
    make: Callable[[], Trained]
    step: str
    words: str
    """What a person is to read, as a pattern."""
    flags: str = ""
    """Faults of ``understudy modelserver``."""
    server: str = ""
    """A defect of ``worlds.odd_model_server``."""
    timeout_ms: int = 4_000


FIGURES = r"-?[\d.e+-]+ is not -?[\d.e+-]+ ± [\d.e+-]+"
WORST = rf"case row \d+ \(\d+ of 20\): {FIGURES}; \d+ of 20 cases differ: "
PLANTS: Final = (
    Plant(
        "activation left out",
        lambda: binary(squash="Identity"),
        "cases",
        WORST + r"the sigmoid of each answer is what is expected: it is missing \(output_schema.activation\)",
    ),
    Plant(
        "activation twice",
        lambda: binary(activation="sigmoid"),
        "cases",
        WORST + r"each answer is the sigmoid of what is expected: one too many \(output_schema.activation\)",
    ),
    Plant(
        "swapped features",
        lambda: binary(chosen(1, 0, 2, 3)),
        "cases",
        WORST + "with 'age' and 'income' exchanged it answers as expected",
    ),
    Plant(
        "answers of another datatype",
        lambda: binary(output=cast(DOUBLE), dtypes=("float32", "float64")),
        "cases",
        r"case row 0 \(1 of 20\): the output is FP64, the schema says FP32; 20 of 20 cases have no answer",
    ),
    Plant(
        "inputs of another datatype",
        lambda: binary(cast(FLOAT), dtypes=("float64", "float32")),
        "cases",
        r"case row 0 .* refused the call with INVALID_ARGUMENT; .*: \"input 'x' must be FP64, is float32\"",
    ),
    Plant(
        "drift of a thousandth",
        lambda: binary(weights_off=1e-3),
        "cases",
        WORST + r"no answer is off by more than 0\.00\d+: as by another precision or runtime",
    ),
    Plant("half the precision", lambda: binary(output=cast(HALF, FLOAT)), "cases", WORST + r".*16 bits \(float16\)"),
    Plant("rounded", lambda: binary(output=rounded), "cases", WORST + "each answer is rounded to 2 decimals"),
    Plant(
        "NaN at a bound",
        lambda: binary(nan_at_zero),
        "robustness",
        r"hard call \d+ \(\d+ rows?\): an output is NaN or infinite, for (age|income|ward|visits)=0\.0",
    ),
    Plant(
        "classes in another order",
        lambda: three_classes(chosen(2, 0, 1)),
        "cases",
        r"case row \d+ .*\(value \d, '\w+'.*; \d+ of 20 cases differ: the values expected at the places 0, 1, 2 stand"
        r" at 1, 2, 0 \('low' at 'middle', 'middle' at 'high', 'high' at 'low'\): its classes are in another order",
    ),
    Plant(
        "labels in another order",
        lambda: three_classes(named=True, labels=["middle", "high", "low"]),
        "cases",
        r"case row \d+ .*: '\w+' is not '\w+'; 20 of 20 cases differ: each label has another one's place: "
        r".*'middle' for 'low'.* \(output_schema.labels\)",
    ),
    Plant(
        "score of the other class",
        lambda: two_outputs(score_index=0),
        "cases",
        WORST + r"each answer is 1 less what is expected: it is the other class's \(output_schema.score_index\)",
    ),
    Plant(
        "a class too few",
        lambda: three_classes(chosen(0, 1), size=2),
        "cases",
        r"case row 0 \(1 of 20\): the output's shape is \[2\], the schema says \[3\]",
    ),
    Plant(
        "file of another version",
        other_version,
        "cases",
        rf"case row-\d+ \(\d+ of 10\): {FIGURES}; 10 of 10 cases differ: no order, unit or activation explains it: "
        "another model's file",
    ),
    Plant("another unit", lambda: number(times(100)), "cases", WORST + "each answer is 100 times what is expected"),
    Plant("logarithm not undone", lambda: number(logarithm), "cases", WORST + "each answer is the logarithm of what"),
    Plant(
        "scaled by the call's own rows",
        lambda: binary(centred_on_call),
        "cases",
        WORST + r"each answer is 0\.\d+, whatever is asked: the inputs do not reach the model",
    ),
    Plant(
        "random as in training", lambda: binary(output=noisy), "cases", WORST + "asked again the same case has another"
    ),
    Plant(
        "output of another name",
        lambda: binary(tensor="probability"),
        "cases",
        r"case row 0 .*: \"unexpected inference output 'probability'; known: \['p'\]\"",
    ),
    Plant(
        "cases of another schema",
        renamed_input,
        "cases",
        r"case row 0 \(1 of 20\): its inputs do not fit the version's input_schema: .*ward.*missing",
    ),
    Plant(
        "rows reversed",
        lambda: binary(output=reversed_rows),
        "batches",
        rf"case row \d+ \(\d+ of 20\), among 128 cases in one call: {FIGURES}, and right by itself; the answers come in"
        " the reverse order",
    ),
    Plant(
        "first row for all",
        lambda: binary(output=first_row),
        "batches",
        rf"{FIGURES}, and right by itself; each row has the answer of the first one",
    ),
    Plant(
        "rows mixed",
        lambda: binary(output=away_from_mean),
        "batches",
        rf"among 128 cases in one call: {FIGURES}, and right by itself; \d+ of the 128 rows differ",
    ),
    Plant(
        "crash at 64 rows",
        binary,
        "robustness",
        r"after hard call 25 \(64 rows\) the model server does not say that it is ready",
        server="crash",
    ),
    Plant(
        "wedge at a bound",
        binary,
        "robustness",
        r"hard call \d+ \(\d+ rows?\): no answer within 5 s, for age=0\.0",
        server="wedge",
    ),
    Plant(
        "no answer at all",
        binary,
        "cases",
        r"case row 0 \(1 of 20\): no answer within 5 s of a model server that says it is ready",
        flags=",hang",
    ),
    Plant(
        "slow",
        binary,
        "load",
        r"calls in 0\.5 s, 4 at a time: p50 \d+ ms, p99 \d+ ms; a call may take 30 ms, its timeout_ms",
        flags=",latency_ms=60",
        timeout_ms=30,
    ),
    Plant(
        "fails now and then",
        binary,
        "load",
        r"and \d+ failed \(the model server refused the call with INTERNAL\); of a hundred calls one may",
        flags=f",error_percent=50,after_calls={CASES + 101}",
    ),
    Plant(
        "calls share memory",
        binary,
        "load",
        rf"with 4 calls at a time case row \d+ \(\d+ of 20\): {FIGURES}; it was right by itself",
        server="shared",
    ),
)
"""All but one that only an agent sees: memory."""
