# mypy: ignore-errors
# (It runs in the clients' own venv, with a package that was generated there.)
"""Runs in the clients' venv: call a proxy by a generated client, and print what came of it as JSON.

python ask_generated.py <folder of the package> <address of the proxy> <inputs as JSON> <the treatments' feature>
"""

import json
import sys

FOLDER, ADDRESS, INPUTS, OFFERED = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
sys.path.insert(0, FOLDER)

from generated.api.predict import predict, rank  # noqa: E402 - from the folder
from generated.client import Client  # noqa: E402
from generated.models import Features, PredictRequest, RankRequest, Treatment  # noqa: E402

client = Client(ADDRESS)


def features(values):
    return Features.from_dict(values)


answer = predict.sync("visits", client=client, body=PredictRequest("customer-42", features(INPUTS)))
offered = INPUTS.pop(OFFERED)
offers = [Treatment(name, features({OFFERED: offered})) for name in ("mail-7", "push-2")]
ranked = rank.sync("visits", client=client, body=RankRequest("customer-42", features(INPUTS), offers))
refused = predict.sync("visits", client=client, body=PredictRequest("customer-42", features({"x": 1})))
found = {
    "score": answer.prediction["score"],
    "version": answer.version,
    "role": answer.role,
    "scores": ranked.prediction.scores,
    "problem": [refused.code, [place.pointer for place in refused.errors]],
}
sys.stdout.write(json.dumps(found))
