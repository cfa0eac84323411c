"""Models that are trained here, by numpy and from a seed: the artifact, the schemas and the cases of each.

What a case expects is computed in double precision with the weights as training left them. The ONNX file has them in
the precision that it is exported in, so an answer differs by what export and serving round.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as with_default
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.random import Generator
from numpy.typing import NDArray

from worlds.onnx_graph import Graph

Numbers: TypeAlias = NDArray[np.float64]
ROWS: Final = 300
"""That a model learns from."""
LABELS: Final = ("setosa", "versicolor", "virginica", "other", "none", "unknown", "rare")
WORDS: Final = ("age", "income", "ward", "visits", "tenure", "distance", "balance", "height")


@dataclass
class Trained:
    """A version as its author leaves it."""

    kind: str
    graph: Graph
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    cases: list[dict[str, Any]]
    protocol: str = "oip"
    timeout_ms: int = 4_000
    backend: dict[str, Any] = with_default(default_factory=dict)

    def write(self, folder: Path, suffix: str = "json") -> Path:
        """Write the artifact: the model, and its cases beside it."""
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(self.graph.file())
        write_cases(folder / f"validation_cases.{suffix}", self.cases)
        return folder


def write_cases(path: Path, cases: list[dict[str, Any]]) -> None:
    """Write cases in the form that the file's suffix says."""
    match path.suffix:
        case ".json":
            path.write_text(json.dumps(cases))
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, cases)))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(cases), path)
        case _:
            names = list(dict.fromkeys(name for case in cases for name in case))
            lines = [",".join(names)]
            lines += [",".join(_cell(case.get(name, "")) for name in names) for case in cases]
            path.write_text("\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return '"' + text.replace('"', '""') + '"'


@dataclass
class Data:
    """What a model learns from, and how its inputs lie in tensors."""

    rng: Generator
    x: Numbers
    names: list[str]
    layout: str
    dtype: str

    @classmethod
    def of(cls, seed: int, dtype: str = "float32", width: int = 0, layout: str = "") -> "Data":
        """Draw inputs; by layout they are ``packed``, ``each`` a tensor of its own, or ``shaped``: one for all."""
        rng = np.random.default_rng(seed)
        width = width or int(rng.integers(2, 25))
        layout = layout or str(rng.choice(["packed", "each", "shaped"]))
        scale = 10.0 ** rng.integers(-1, 3, width)
        x = np.round(rng.normal(0, 1, (ROWS, width)) * scale, 3).astype(dtype).astype(np.float64)
        names = [WORDS[place] if place < len(WORDS) else f"feature_{place}" for place in range(width)]
        return cls(rng, x, names, layout, dtype)

    @property
    def width(self) -> int:
        return len(self.names)

    def target(self) -> Numbers:
        """Return something to learn: linear, with a bend and noise."""
        z = (self.x - self.x.mean(0)) / self.x.std(0)
        weights = self.rng.normal(0, 1, self.width)
        return np.asarray(z @ weights + 0.5 * np.tanh(z[:, 0] * z[:, -1]) + self.rng.normal(0, 0.1, ROWS))

    def schema(self, **more: Any) -> dict[str, Any]:
        if self.layout == "shaped":
            features = [{"name": "x", "dtype": self.dtype, "shape": [self.width]}]
            return {"features": features, "batch": True, **more}
        low, high = self.x.min(0), self.x.max(0)
        bounded = self.rng.random(self.width) < 0.5
        bounds: list[dict[str, Any]] = [
            {"min": float(a), "max": float(b)} if has else {} for a, b, has in zip(low, high, bounded, strict=True)
        ]
        features = [{"name": name, "dtype": self.dtype, **of} for name, of in zip(self.names, bounds, strict=True)]
        tensors = [{"name": "x", "dtype": self.dtype, "features": self.names}] if self.layout == "packed" else None
        return {"features": features, "batch": True, **({"tensors": tensors} if tensors else {}), **more}

    def graph(self) -> tuple[Graph, str]:
        """Return a graph with the inputs, and all of them in one value of a row a line."""
        graph = Graph()
        if self.layout != "each":
            return graph, graph.input("x", self.dtype, self.width)
        axes = graph.constant([1], "int64")
        columns = [graph.add("Unsqueeze", graph.input(name, self.dtype), axes) for name in self.names]
        return graph, graph.add("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]

    def standardised(self) -> tuple[Graph, str, Numbers]:
        """Return a graph with its scaled inputs, and the same in double precision."""
        graph, x = self.graph()
        mean, std = self.x.mean(0), self.x.std(0)
        scaled = graph.add(
            "Div", graph.add("Sub", x, graph.constant(mean, self.dtype)), graph.constant(std, self.dtype)
        )
        return graph, scaled, (self.x - mean) / std

    def cases(self, expected: Any, count: int = 0) -> list[dict[str, Any]]:
        """Return the first rows as cases."""
        rows = range(count or int(self.rng.integers(5, 40)))
        listed = expected.tolist() if isinstance(expected, np.ndarray) else list(expected)
        return [{"case_id": f"row {row}", **self.inputs(row), "expected": listed[row]} for row in rows]

    def inputs(self, row: int) -> dict[str, Any]:
        values = self.x[row].tolist()
        return {"x": values} if self.layout == "shaped" else dict(zip(self.names, values, strict=True))


def sigmoid(values: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-values)))


def softmax(values: Numbers) -> Numbers:
    weights = np.exp(values - values.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def affine(graph: Graph, x: str, weights: Numbers, bias: Any, dtype: str = "float32") -> str:
    """Add ``x @ weights + bias``."""
    return graph.add("Add", graph.add("MatMul", x, graph.constant(weights, dtype)), graph.constant(bias, dtype))


def least_squares(z: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return weights, a column, and the bias of a ridge regression."""
    one = np.hstack([z, np.ones((len(z), 1))])
    found = np.linalg.solve(one.T @ one + 1e-3 * np.eye(one.shape[1]), one.T @ y)
    return np.asarray(found[:-1, None], np.float64), np.asarray(found[-1:], np.float64)


def logistic_fit(z: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """Return weights, a column, and the bias of a logistic regression, by Newton's steps."""
    one, found = np.hstack([z, np.ones((len(z), 1))]), np.zeros(z.shape[1] + 1)
    for _ in range(8):
        p = sigmoid(one @ found)
        hessian = one.T * (p * (1 - p)) @ one + np.eye(len(found))
        found -= np.linalg.solve(hessian, one.T @ (p - y) + found)
    return np.asarray(found[:-1, None], np.float64), np.asarray(found[-1:], np.float64)


def softmax_fit(z: Numbers, classes: NDArray[np.int64], count: int) -> tuple[Numbers, Numbers]:
    """Return the weights and biases of a multinomial regression, by gradient descent."""
    one, weights = np.hstack([z, np.ones((len(z), 1))]), np.zeros((z.shape[1] + 1, count))
    wanted = np.eye(count)[classes]
    for _ in range(150):
        weights -= 0.5 * (one.T @ (softmax(one @ weights) - wanted) / len(z) + 1e-3 * weights)
    return weights[:-1], weights[-1]


# -- kinds of models ---------------------------------------------------------------------------------------------------


def linear(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    scale = float(10.0 ** data.rng.integers(-2, 4))
    weights, bias = least_squares(z, data.target() * scale)
    expected = (z @ weights + bias).ravel()
    graph.output(affine(graph, x, weights, bias), "y", "float32", 1)
    return Trained("linear", graph, data.schema(), {"tensor": "y", "dtype": "float32"}, data.cases(expected))


def linear64(seed: int) -> Trained:
    data = Data.of(seed, "float64")
    graph, x, z = data.standardised()
    weights, bias = least_squares(z, data.target())
    expected = (z @ weights + bias).ravel()
    graph.output(affine(graph, x, weights, bias, "float64"), "y", "float64", 1)
    return Trained("linear64", graph, data.schema(), {"tensor": "y", "dtype": "float64"}, data.cases(expected))


def logged_target(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    weights, bias = least_squares(z, data.target() / np.sqrt(data.width))
    expected = np.exp(z @ weights + bias).ravel()
    graph.output(graph.add("Exp", affine(graph, x, weights, bias)), "y", "float32", 1)
    return Trained("logged_target", graph, data.schema(), {"tensor": "y", "min": 0}, data.cases(expected))


def logistic(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    weights, bias = logistic_fit(z, (data.target() > 0).astype(np.float64))
    p = sigmoid(z @ weights + bias).ravel()
    graph.output(graph.add("Sigmoid", affine(graph, x, weights, bias)), "p", "float32", 1)
    schema = {"tensor": "p", "dtype": "float32", "min": 0, "max": 1}
    return Trained("logistic", graph, data.schema(), schema, data.cases(p))


def logits(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    weights, bias = logistic_fit(z, (data.target() > 0).astype(np.float64))
    p = sigmoid(z @ weights + bias).ravel()
    graph.output(affine(graph, x, weights, bias), "logit", "float32", 1)
    return Trained("logits", graph, data.schema(), {"activation": "sigmoid", "min": 0, "max": 1}, data.cases(p))


def two_classes(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    weights, bias = softmax_fit(z, (data.target() > 0).astype(np.int64), 2)
    p = softmax(z @ weights + bias)
    value = graph.add("Softmax", affine(graph, x, weights, bias), axis=1)
    best = graph.add("ArgMax", value, axis=1, keepdims=0)
    graph.output(best, "label", "int64").output(value, "probabilities", "float32", 2)
    schema = {"tensor": "probabilities", "shape": [2], "score_index": 1, "also": ["label"], "labels": ["no", "yes"]}
    return Trained("two_classes", graph, data.schema(), schema, data.cases(p[:, 1]))


def classes(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    count = int(data.rng.integers(3, len(LABELS) + 1))
    ranks = np.argsort(np.argsort(data.target()))
    weights, bias = softmax_fit(z, ranks * count // ROWS, count)
    p = softmax(z @ weights + bias)
    value = affine(graph, x, weights, bias)
    is_activated = seed % 2 == 0
    graph.output(graph.add("Softmax", value, axis=1) if is_activated else value, "out", "float32", count)
    schema = {"labels": list(LABELS[:count]), "shape": [count], "activation": "none" if is_activated else "softmax"}
    cases = data.cases(p)
    if seed % 3 == 0:
        for case, row in zip(cases, p, strict=False):
            case["expected"] = LABELS[int(row.argmax())]
    return Trained("classes", graph, data.schema(), schema, cases)


def named_class(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    ranks = np.argsort(np.argsort(data.target()))
    weights, bias = softmax_fit(z, ranks * 3 // ROWS, 3)
    best = (z @ weights + bias).argmax(1)
    place = graph.add("ArgMax", affine(graph, x, weights, bias), axis=1, keepdims=0)
    name = graph.add("Gather", graph.constant(LABELS[:3], "object"), place, axis=0)
    graph.output(name, "name", "object")
    return Trained(
        "named_class",
        graph,
        data.schema(),
        {"tensor": "name", "dtype": "string"},
        data.cases([LABELS[b] for b in best]),
    )


def network(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    hidden = int(data.rng.integers(8, 200))
    first, shift = data.rng.normal(0, 1 / np.sqrt(data.width), (data.width, hidden)), data.rng.normal(0, 1, hidden)
    kind = str(data.rng.choice(["Relu", "Tanh"]))
    inner = np.tanh(z @ first + shift) if kind == "Tanh" else np.maximum(z @ first + shift, 0)
    weights, bias = least_squares(inner, data.target())
    expected = (inner @ weights + bias).ravel()
    graph.output(affine(graph, graph.add(kind, affine(graph, x, first, shift)), weights, bias), "y", "float32", 1)
    return Trained("network", graph, data.schema(), {"tensor": "y"}, data.cases(expected))


def boosted_stumps(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x = data.graph()
    target, rate, count = data.target(), 0.3, int(data.rng.integers(10, 120))
    expected = np.full(ROWS, target.mean())
    leaves: list[tuple[int, float, float, float]] = []
    for _ in range(count):
        place = int(data.rng.integers(data.width))
        bound = float(np.float32(np.quantile(data.x[:, place], data.rng.uniform(0.1, 0.9)) + 1e-3))
        is_below, left = data.x[:, place] < bound, target - expected
        low = rate * left[is_below].mean() if is_below.any() else 0.0
        high = rate * left[~is_below].mean() if not is_below.all() else 0.0
        expected += np.where(is_below, low, high)
        leaves.append((place, bound, float(low), float(high)))
    places, bounds, below, above = zip(*leaves, strict=True)
    chosen = graph.add("Gather", x, graph.constant(places, "int64"), axis=1)
    is_less = graph.add("Less", chosen, graph.constant(bounds))
    values = graph.add("Where", is_less, graph.constant(below), graph.constant(above))
    total = graph.add("ReduceSum", values, graph.constant([1], "int64"), keepdims=1)
    graph.output(graph.add("Add", total, graph.constant([target.mean()])), "y", "float32", 1)
    return Trained("boosted_stumps", graph, data.schema(), {"tensor": "y"}, data.cases(expected))


def centroids(seed: int) -> Trained:
    data = Data.of(seed)
    graph, x, z = data.standardised()
    count = int(data.rng.integers(2, 6))
    ranks = np.argsort(np.argsort(data.target())) * count // ROWS
    middles = np.stack([z[ranks == one].mean(0) for one in range(count)])
    expected = -((z[:, None, :] - middles) ** 2).sum(2)
    away = graph.add("Sub", graph.add("Unsqueeze", x, graph.constant([1], "int64")), graph.constant(middles))
    squares = graph.add("ReduceSum", graph.add("Mul", away, away), graph.constant([2], "int64"), keepdims=0)
    graph.output(graph.add("Neg", squares), "nearness", "float32", count)
    return Trained("centroids", graph, data.schema(), {"shape": [count]}, data.cases(expected))


def table(seed: int) -> Trained:
    """A category that is looked up, beside a number."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(3, 60))
    effects, slope = rng.normal(0, 1, size), float(rng.normal())
    ward, age = rng.integers(0, size, ROWS), np.round(rng.uniform(0, 99, ROWS), 1).astype(np.float32).astype(np.float64)
    target = effects[ward] + slope * age / 50 + rng.normal(0, 0.1, ROWS)
    one = np.hstack([np.eye(size)[ward], age[:, None] / 50])
    found = np.linalg.solve(one.T @ one + 1e-2 * np.eye(size + 1), one.T @ target)
    graph = Graph()
    looked = graph.add("Gather", graph.constant(found[:-1]), graph.input("ward", "int64"), axis=0)
    slanted = graph.add("Mul", graph.input("age", "float32"), graph.constant(found[-1] / 50))
    graph.output(graph.add("Add", looked, slanted), "y", "float32")
    wards = {"enum": list(range(size))} if size < 10 else {"min": 0, "max": size - 1}
    features = [
        {"name": "ward", "dtype": "int64", **wards},
        {"name": "age", "dtype": "float32", "min": 0, "max": 120, "default": 40.0},
    ]
    cases = [{"ward": int(ward[row]), "age": float(age[row]), "expected": float(one[row] @ found)} for row in range(20)]
    return Trained("table", graph, {"features": features, "batch": True}, {"tensor": "y"}, cases)


KINDS: Final[tuple[Callable[[int], Trained], ...]] = (
    linear,
    logistic,
    logits,
    two_classes,
    classes,
    named_class,
    network,
    boosted_stumps,
    centroids,
    table,
    linear64,
    logged_target,
)


def trained(seed: int) -> Trained:
    """Return one of them, in turn; every third is called over the other protocol."""
    model = KINDS[seed % len(KINDS)](seed)
    if seed % 3 == 2:
        model.protocol = "tfserving"
    elif seed % 3 == 1:
        model.backend = {"typed_contents": True}
    return model
