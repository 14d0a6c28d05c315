#!/usr/bin/env python3
"""Writes optimizers.json beside itself: weights after each of six updates with given gradients, by torch.optim in double
precision, and by TensorFlow's ApplyRMSProp formula (mean square from 1, epsilon inside the root) written out in Python.

Run with a Python that has torch (Debian: python3-torch). The tests read the stored file and need no PyTorch.
"""
import json
import math
import os

import torch

RATE, STEPS, SIZE = 0.05, 6, 5
torch.manual_seed(3)
START = torch.randn(SIZE, dtype=torch.float64)
GRADIENTS = torch.randn(STEPS, SIZE, dtype=torch.float64)

TORCH = {
    'sgd: {momentum: 0.0}': lambda p: torch.optim.SGD(p, lr=RATE),
    'sgd: {momentum: 0.0, weight_decay: 0.1}': lambda p: torch.optim.SGD(p, lr=RATE, weight_decay=0.1),
    'sgd: {momentum: 0.9, weight_decay: 0.1}': lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=0.1),
    'sgd: {momentum: 0.8, dampening: 0.3}': lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.8, dampening=0.3),
    'sgd: {momentum: 0.9, nesterov: true}': lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, nesterov=True),
    'adam': lambda p: torch.optim.Adam(p, lr=RATE),
    'adam: {beta1: 0.8, beta2: 0.95, epsilon: 0.001, weight_decay: 0.1}':
        lambda p: torch.optim.Adam(p, lr=RATE, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    'adamw': lambda p: torch.optim.AdamW(p, lr=RATE),
    'adamw: {weight_decay: 0.2}': lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.2),
}
RMSPROP = {
    'rmsprop': (0.9, 0.0, 1e-10),
    'rmsprop: {decay: 0.9, momentum: 0.9, epsilon: 1.0}': (0.9, 0.9, 1.0),
}


def by_torch(make):
    weight = START.clone().requires_grad_()
    optimizer = make([weight])
    steps = []
    for gradient in GRADIENTS:
        weight.grad = gradient.clone()
        optimizer.step()
        steps.append(weight.tolist())
    return steps


def by_formula(decay, momentum, epsilon):
    weight, square, velocity = START.tolist(), [1.0] * SIZE, [0.0] * SIZE
    steps = []
    for gradient in GRADIENTS.tolist():
        for i, g in enumerate(gradient):
            square[i] += (1 - decay) * (g * g - square[i])
            velocity[i] = momentum * velocity[i] + RATE * g / math.sqrt(square[i] + epsilon)
            weight[i] -= velocity[i]
        steps.append(list(weight))
    return steps


cases = [dict(optimizer=name, weights=by_torch(make)) for name, make in TORCH.items()]
cases += [dict(optimizer=name, weights=by_formula(*values)) for name, values in RMSPROP.items()]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'optimizers.json'), 'w') as file:
    json.dump(dict(learning_rate=RATE, start=START.tolist(), gradients=GRADIENTS.tolist(), cases=cases), file, indent=0)
