"""Writes tests/reference/safetensors_sample.safetensors with the public Python package, for tests/train/safetensors_test.cpp.

    pip install safetensors numpy
    python3 tests/reference/safetensors_file.py            # writes the sample
    python3 tests/reference/safetensors_file.py FILE...    # prints what the package reads from files of ours
"""

import pathlib
import sys

import numpy
import safetensors
from safetensors.numpy import save_file

SAMPLE = pathlib.Path(__file__).with_name("safetensors_sample.safetensors")


def write():
    tensors = {
        "conv.weight": numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 2, 2) / 4,
        "conv.bias": numpy.array([-1.5, 2.25], dtype=numpy.float32),
        "bn.num_batches_tracked": numpy.array(3, dtype=numpy.int64),
        "index": numpy.array([1, -2, 3], dtype=numpy.int32),
        "wide": numpy.array([1e300, -0.0], dtype=numpy.float64),
    }
    save_file(tensors, SAMPLE, metadata={"format": "pt", "note": "made by safetensors " + safetensors.__version__})


def show(path):
    with safetensors.safe_open(path, framework="numpy") as file:
        print(path, file.metadata())
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            print(f"  {name} {tensor.dtype} {list(tensor.shape)} {tensor.ravel().tolist()}")


if len(sys.argv) == 1:
    write()
for argument in sys.argv[1:]:
    show(argument)
