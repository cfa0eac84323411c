"""Train the example models and write them to ``src/understudy/models`` (``make models``; needs requirements/train.txt).

Every figure is measured on the ONNX file that is written, with the runtime that serves it, not on the scikit-learn
model. The seed is fixed: the same library versions give the same figures.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import sklearn
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import GroupShuffleSplit, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.datasets import randhie

SEED = 20_190
TEST_RATIO = 0.25
TARGET_OPSET = {"": 17, "ai.onnx.ml": 3}
VISITS_ROWS = 2_000
DIGITS_ROWS = 200
CASES = 10
HISTOGRAM_BINS = 20
FOLDER = Path(__file__).resolve().parent.parent / "src" / "understudy" / "models"
FIGURES_HEADING = "## Figures"

FLAG = {"dtype": "int64", "min": 0, "max": 1}
# (name in our schema, column of randhie, the rest of the schema's entry); bounds are the ones the source defines.
VISITS_FEATURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "log_coinsurance",
        "lncoins",
        {
            "dtype": "float32",
            "min": 0,
            "max": 4.6152,
            "description": "ln(coinsurance + 1); coinsurance is the percent of a bill that the person pays, 0 to 100",
        },
    ),
    ("has_deductible", "idp", {**FLAG, "description": "1 when the plan has a deductible for each person"}),
    (
        "log_incentive",
        "lpi",
        {
            "dtype": "float32",
            "min": 0,
            "description": "ln(max(1, dollars paid each year for taking part))",
        },
    ),
    (
        "log_expenditure_limit",
        "fmde",
        {
            "dtype": "float32",
            "min": 0,
            "description": "0 with a deductible; else ln(max(1, limit of own spending / (0.01 coinsurance)))",
        },
    ),
    (
        "physical_limitation",
        "physlm",
        {
            "dtype": "float32",
            "min": 0,
            "max": 1,
            "description": "1 when the person has a physical limitation; a share where the survey imputed it",
        },
    ),
    (
        "chronic_diseases",
        "disea",
        {"dtype": "float32", "min": 0, "description": "index of chronic diseases, 0 to about 59"},
    ),
    ("health_good", "hlthg", {**FLAG, "description": "1 when the person calls their health good"}),
    ("health_fair", "hlthf", {**FLAG, "description": "1 when the person calls their health fair"}),
    (
        "health_poor",
        "hlthp",
        {**FLAG, "description": "1 when the person calls their health poor (excellent: all three 0)"},
    ),
)
SKEWED_COLUMNS = (5, 2, 8, 0, 7, 3, 1, 6, 4)
"""visits-3 is trained with its columns in this order and served with the right one: a feature pipeline's mistake."""


class Split(NamedTuple):
    """Rows to learn from and rows held out."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    test_index: np.ndarray


class Candidate(NamedTuple):
    """A version to train; ``columns`` is the order in which training sees the features."""

    model_name: str
    version: int
    role: str
    description: str
    estimator: Any
    columns: tuple[int, ...] | None = None


def candidates() -> list[Candidate]:
    shallow = {"learning_rate": 0.1, "random_state": SEED}
    return [
        Candidate(
            "visits", 1, "champion", "logistic regression", make_pipeline(StandardScaler(), LogisticRegression())
        ),
        Candidate(
            "visits",
            2,
            "challenger",
            "gradient boosted trees",
            GradientBoostingClassifier(n_estimators=80, max_depth=4, min_samples_leaf=20, **shallow),
        ),
        Candidate(
            "visits",
            3,
            "bad challenger",
            "gradient boosted trees, trained with its columns in the wrong order",
            GradientBoostingClassifier(n_estimators=40, max_depth=3, **shallow),
            SKEWED_COLUMNS,
        ),
        Candidate(
            "visits",
            4,
            "shadow",
            "random forest",
            RandomForestClassifier(n_estimators=24, max_depth=6, min_samples_leaf=20, random_state=SEED),
        ),
        Candidate(
            "digits", 1, "champion", "logistic regression", make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
        ),
    ]


def load_visits() -> tuple[np.ndarray, np.ndarray]:
    data = randhie.load_pandas().data
    inputs = data[[column for _, column, _ in VISITS_FEATURES]].to_numpy(np.float32)
    return inputs, (data["mdvis"] > 0).to_numpy(np.int64)


def split_by_row(inputs: np.ndarray, labels: np.ndarray) -> Split:
    index = np.arange(len(labels))
    train, test = train_test_split(index, test_size=TEST_RATIO, random_state=SEED, stratify=labels)
    return Split(inputs[train], labels[train], inputs[test], labels[test], test)


def split_by_profile(inputs: np.ndarray, labels: np.ndarray) -> Split:
    """Hold out whole groups of rows with equal features, so that no test row was seen in training."""
    profiles = np.unique(inputs, axis=0, return_inverse=True)[1]
    folds = GroupShuffleSplit(n_splits=1, test_size=TEST_RATIO, random_state=SEED)
    train, test = next(folds.split(inputs, labels, profiles))
    return Split(inputs[train], labels[train], inputs[test], labels[test], test)


def fitted(candidate: Candidate, split: Split) -> Any:
    order = candidate.columns or tuple(range(split.train_x.shape[1]))
    return candidate.estimator.fit(split.train_x[:, order], split.train_y)


def converted(candidate: Candidate, split: Split) -> bytes:
    model = fitted(candidate, split)
    onnx = convert_sklearn(
        model,
        name=f"{candidate.model_name}-{candidate.version}",
        initial_types=[("input", FloatTensorType([None, split.train_x.shape[1]]))],
        options={id(model): {"zipmap": False}},
        target_opset=TARGET_OPSET,
    )
    return bytes(onnx.SerializeToString())


def probabilities(onnx: bytes, inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["probabilities"], {"input": inputs})[0])


def measured(answers: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    binary = answers.shape[1] == 2  # noqa: PLR2004  a yes and a no
    # float32 probabilities sum to 1 only within 1e-7, which scikit-learn warns about.
    answers = answers.astype(np.float64) / answers.sum(axis=1, keepdims=True, dtype=np.float64)
    auc = roc_auc_score(labels, answers[:, 1]) if binary else roc_auc_score(labels, answers, multi_class="ovr")
    return {
        "auc": round(float(auc), 4),
        "accuracy": round(float(accuracy_score(labels, answers.argmax(axis=1))), 4),
        "log_loss": round(float(log_loss(labels, answers)), 4),
    }


def scores_of(answers: np.ndarray) -> np.ndarray:
    """Return what the proxy calls the score: the second probability of two, otherwise the greatest."""
    return answers[:, 1] if answers.shape[1] == 2 else answers.max(axis=1)  # noqa: PLR2004  a yes and a no


def baseline_of(scores: np.ndarray) -> dict[str, Any]:
    counts, edges = np.histogram(scores, bins=HISTOGRAM_BINS, range=(0.0, 1.0))
    return {
        "count": len(scores),
        "mean": round(float(scores.mean()), 6),
        "std": round(float(scores.std(ddof=1)), 6),
        "bin_edges": [round(float(edge), 6) for edge in edges],
        "bin_counts": [int(count) for count in counts],
    }


def input_schema_of(model_name: str) -> dict[str, Any]:
    if model_name == "digits":
        pixels = {
            "name": "pixels",
            "dtype": "float32",
            "shape": [64],
            "min": 0,
            "max": 16,
            "description": "8 x 8 grey values of a handwritten digit, row by row; 0 is paper, 16 is ink",
        }
        features = [pixels]
    else:
        features = [{"name": name, **rest} for name, _, rest in VISITS_FEATURES]
    tensor = {"name": "input", "dtype": "float32", "features": [feature["name"] for feature in features]}
    return {"features": features, "tensors": [tensor], "batch": True}


def output_schema_of(model_name: str) -> dict[str, Any]:
    common = {"tensor": "probabilities", "dtype": "float32", "min": 0, "max": 1}
    if model_name == "digits":
        return {**common, "shape": [10], "labels": [str(digit) for digit in range(10)]}
    return {**common, "shape": [2], "score_index": 1, "labels": ["no_visit", "visit"]}


def entry_of(candidate: Candidate, onnx: bytes, split: Split, profile_auc: float | None) -> dict[str, Any]:
    metrics = measured(probabilities(onnx, split.test_x), split.test_y)
    if profile_auc is not None:
        metrics["auc_unseen_profiles"] = profile_auc
    return {
        "model_name": candidate.model_name,
        "version": candidate.version,
        "role": candidate.role,
        "description": candidate.description,
        "framework": "sklearn",
        "file": f"{candidate.model_name}-{candidate.version}.onnx",
        "bytes": len(onnx),
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "input_schema": input_schema_of(candidate.model_name),
        "output_schema": output_schema_of(candidate.model_name),
        "metrics": {"test_rows": len(split.test_y), **metrics},
        "baseline": baseline_of(scores_of(probabilities(onnx, split.train_x))),
    }


def number(value: float) -> float | int:
    """Return the shortest decimal that is the same float32; whole numbers without a point."""
    short = float(np.format_float_positional(np.float32(value), unique=True))
    return int(short) if short.is_integer() else short


def held_out_rows(names: Sequence[str], split: Split, count: int, seed: int = SEED) -> dict[str, Any]:
    """Return ``count`` held-out rows, each: number in the source, features in the order of ``names``, label."""
    chosen = np.sort(np.random.default_rng(seed).choice(len(split.test_y), size=count, replace=False))
    rows = [
        [int(split.test_index[i]), [number(value) for value in split.test_x[i]], int(split.test_y[i])] for i in chosen
    ]
    return {"features": list(names), "rows": rows}


def answers_to(rows: dict[str, Any], onnx: bytes) -> list[float] | list[list[float]]:
    """Return what a version answers to the first held-out rows, as its score or its scores."""
    inputs = np.array([values for _, values, _ in rows["rows"][:CASES]], np.float32)
    answers = probabilities(onnx, inputs)
    shown = answers[:, 1] if answers.shape[1] == 2 else answers  # noqa: PLR2004  a yes and a no
    return np.round(shown.astype(np.float64), 6).tolist()  # type: ignore[no-any-return]


def write_gzip(name: str, document: dict[str, Any]) -> None:
    text = json.dumps(document, separators=(",", ":")).encode()
    (FOLDER / name).write_bytes(gzip.compress(text, compresslevel=9, mtime=0))


def write_figures(entries: Sequence[dict[str, Any]]) -> None:
    """Replace what README.md says after its heading "Figures"."""
    lines = [
        "| version | role | what | AUC | AUC, unseen profiles | accuracy | log loss | bytes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        metrics = entry["metrics"]
        lines.append(
            f"| `{entry['model_name']}-{entry['version']}` | {entry['role']} | {entry['description']} "
            f"| {metrics['auc']:.4f} | {metrics.get('auc_unseen_profiles', '')} | {metrics['accuracy']:.4f} "
            f"| {metrics['log_loss']:.4f} | {entry['bytes']:,} |"
        )
    readme = FOLDER / "README.md"
    before = readme.read_text().split(FIGURES_HEADING)[0]
    readme.write_text(before + FIGURES_HEADING + "\n\n" + "\n".join(lines) + "\n")


def refuse_unless_challenger_is_better(entries: Sequence[dict[str, Any]]) -> None:
    auc = {f"{entry['model_name']}-{entry['version']}": entry["metrics"]["auc"] for entry in entries}
    if not auc["visits-2"] > auc["visits-1"] + 0.02 or not auc["visits-3"] < auc["visits-1"] - 0.02:
        sys.exit(f"the roles do not hold: {auc}")


def main() -> None:
    visits = load_visits()
    digits = load_digits()
    splits = {
        "visits": split_by_row(*visits),
        "digits": split_by_row(digits.data.astype(np.float32), digits.target.astype(np.int64)),
    }
    entries, files = [], {}
    for candidate in candidates():
        split = splits[candidate.model_name]
        profile_auc = None
        if candidate.model_name == "visits":
            grouped = split_by_profile(*visits)
            profile_auc = measured(probabilities(converted(candidate, grouped), grouped.test_x), grouped.test_y)["auc"]
        onnx = converted(candidate, split)
        entry = entry_of(candidate, onnx, split, profile_auc)
        entries.append(entry)
        files[entry["file"]] = onnx
        print(entry["file"], entry["bytes"], entry["metrics"])
    refuse_unless_challenger_is_better(entries)
    for name, onnx in files.items():
        (FOLDER / name).write_bytes(onnx)
    document = {"seed": SEED, "scikit_learn": sklearn.__version__, "versions": entries}
    (FOLDER / "models.json").write_text(json.dumps(document, indent=1) + "\n")
    rows = {
        "visits": held_out_rows([name for name, _, _ in VISITS_FEATURES], splits["visits"], VISITS_ROWS),
        "digits": held_out_rows(["pixels"], splits["digits"], DIGITS_ROWS),
    }
    for model_name, held_out in rows.items():
        write_gzip(f"{model_name}_rows.json.gz", held_out)
    answers = {
        f"{entry['model_name']}-{entry['version']}": answers_to(rows[entry["model_name"]], files[entry["file"]])
        for entry in entries
    }
    (FOLDER / "cases.json").write_text(json.dumps(answers, indent=1) + "\n")
    write_figures(entries)


if __name__ == "__main__":
    main()
