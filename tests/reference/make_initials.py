#!/usr/bin/env python3
"""Writes initials.json beside itself: what torch.nn.init starts weights with, for the tests to compare the product with.

Run like make_reference.py. Random kinds are given by their standard deviation or bound, which PyTorch computes from the weight's
shape; dirac and eye by their values.
"""
import json
import os

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS = {
    "linear {out_features: 7}": ([5], (7, 5)),
    "conv2d {out_channels: 6, kernel_size: [3, 2], groups: 2}": ([5, 5, 4], (6, 2, 3, 2)),
    "conv_transpose2d {out_channels: 6, kernel_size: [3, 2], groups: 2}": ([5, 5, 4], (4, 3, 3, 2)),
}


def kaiming(shape, mode, nonlinearity, a=0.0):
    fan = nn.init._calculate_correct_fan(torch.empty(shape), mode)
    return nn.init.calculate_gain(nonlinearity, a) / fan ** 0.5


def xavier(shape, gain):
    fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    return gain * (2.0 / (fan_in + fan_out)) ** 0.5


def cases():
    for layer, (inputs, shape) in LAYERS.items():
        def row(rule, **values):
            return dict(layer=layer.split(" ", 1)[0], arguments=layer.split(" ", 1)[1], input=inputs, init=rule, **values)
        for mode in ("fan_in", "fan_out"):
            for nonlinearity in ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
                options = f"{{mode: {mode}, nonlinearity: {nonlinearity}, a: 0.2}}"
                std = kaiming(shape, mode, nonlinearity, 0.2)
                yield row(f"{{kaiming_normal: {options}}}", std=std)
                yield row(f"{{kaiming_uniform: {options}}}", bound=3 ** 0.5 * std)
        yield row("kaiming_uniform", bound=3 ** 0.5 * kaiming(shape, "fan_in", "leaky_relu"))
        for gain in (1.0, 0.3):
            yield row(f"{{xavier_normal: {{gain: {gain}}}}}", std=xavier(shape, gain))
            yield row(f"{{xavier_uniform: {{gain: {gain}}}}}", bound=3 ** 0.5 * xavier(shape, gain))
        if len(shape) == 2:
            yield row("eye", values=nn.init.eye_(torch.empty(shape)).flatten().tolist())
        else:
            for groups in (1, 2):
                yield row(f"{{dirac: {{groups: {groups}}}}}", values=nn.init.dirac_(torch.empty(shape), groups).flatten().tolist())
    for layer, arguments, inputs, module in (
            ("linear", "{out_features: 7}", [5], nn.Linear(5, 7)),
            ("conv2d", "{out_channels: 6, kernel_size: [3, 2], groups: 2}", [5, 5, 4], nn.Conv2d(4, 6, (3, 2), groups=2)),
            ("conv_transpose2d", "{out_channels: 6, kernel_size: [3, 2], groups: 2}", [5, 5, 4],
             nn.ConvTranspose2d(4, 6, (3, 2), groups=2))):
        fan_in, _ = nn.init._calculate_fan_in_and_fan_out(module.weight)
        bound = nn.init.calculate_gain("leaky_relu", 5 ** 0.5) * (3 / fan_in) ** 0.5  # reset_parameters
        assert module.weight.abs().max() <= bound
        yield dict(layer=layer, arguments=arguments, input=inputs, init="", bound=bound)


if __name__ == "__main__":
    with open(os.path.join(HERE, "initials.json"), "w") as file:
        text = json.dumps(dict(torch=torch.__version__, cases=list(cases())), separators=(",", ":"))
        file.write(text.replace("},{", "},\n{") + "\n")
