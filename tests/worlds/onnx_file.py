"""ONNX files of any size: one matrix, and a sigmoid of its product with a row."""

import numpy as np

from worlds.onnx_graph import Graph

WIDTH = 256


def a_matrix_model(size_bytes: int) -> bytes:
    """Return a model of some ``size_bytes``: ``x`` with ``WIDTH`` numbers in, ``y`` out."""
    columns = max(size_bytes // (4 * WIDTH), 1)
    graph = Graph()
    weights = graph.constant(np.linspace(-1.0, 1.0, WIDTH * columns, dtype=np.float32).reshape(WIDTH, columns))
    product = graph.add("MatMul", graph.input("x", "float32", WIDTH), weights)
    return graph.output(graph.add("Sigmoid", product), "y", "float32", columns).file()
