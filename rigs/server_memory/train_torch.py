# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TorchServe's venv: train three networks, and write them as archives of TorchScript.

``python train_torch.py FOLDER``
"""

import subprocess
import sys
from pathlib import Path

import torch

HANDLER = """
import json

import torch


class Handler:
    def initialize(self, context):
        self.model = torch.jit.load(context.system_properties["model_dir"] + "/model.pt")

    def handle(self, requests, context):
        return [self.one(request.get("data") or request.get("body")) for request in requests]

    def one(self, body):
        body = json.loads(body) if isinstance(body, (bytes, bytearray, str)) else body
        with torch.no_grad():
            return {"p": self.model(torch.tensor(body["x"]).reshape(1, -1))[0, 0].item()}
"""
WIDTHS = {"network-16": 16, "network-2k": 2_000, "network-5k": 5_000}
STEPS = 3

folder = Path(sys.argv[1])
torch.manual_seed(7)
rows = torch.randn(200, 64)
targets = torch.sigmoid(rows[:, :1] - rows[:, 1:2])
for name, width in WIDTHS.items():
    place = folder / name
    place.mkdir(parents=True)
    layers = (torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU())
    model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1), torch.nn.Sigmoid())
    descent = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        descent.zero_grad()
        torch.nn.functional.mse_loss(model(rows), targets).backward()
        descent.step()
    work = folder / f"{name}.work"
    work.mkdir()
    torch.jit.script(model).save(str(work / "model.pt"))
    (work / "handler.py").write_text(HANDLER)
    archiver = Path(sys.executable).parent / "torch-model-archiver"
    asked = ["--model-name", name, "--version", "1.0", "--serialized-file", work / "model.pt"]
    subprocess.run([archiver, *asked, "--handler", work / "handler.py", "--export-path", place], check=True)
