#!/usr/bin/env python3
"""Writes nodes.json and training.json beside itself: numbers made with PyTorch that the tests compare the product with.

Run with a Python that has torch (Debian: apt install python3-torch; /usr/bin/python3). The tests read the stored files and
need no PyTorch. Values are channels-last in the files, as in the product; weights are PyTorch's.
"""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def to_torch(x):
    """[N, H, W, C] -> [N, C, H, W], [N, T, C] -> [N, C, T] is not needed: only images move."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def from_torch(y):
    return y.permute(0, 2, 3, 1) if y.dim() == 4 else y


def case(kind, arguments, shapes, samples, run, parameters=(), buffers=None, target=None):
    """run(inputs in PyTorch's layout, parameters) -> output in PyTorch's layout."""
    inputs = [torch.randn(samples, *shape, requires_grad=True) for shape in shapes]
    if target is not None:
        inputs.append(target)
    params = [torch.randn(*shape, requires_grad=True) for shape in parameters]
    output = from_torch(run([to_torch(x) if x.is_floating_point() else x for x in inputs], params))
    dy = torch.randn_like(output)
    entry = dict(type=kind, arguments=arguments, samples=samples,
                 shapes=[list(x.shape[1:]) for x in inputs],
                 inputs=[numbers(x.float()) for x in inputs], parameters=[numbers(p) for p in params])
    if kind in ("cross_entropy", "mse"):  # output: the loss of each sample
        output.mean().backward()
        entry.update(losses=numbers(output))
    else:
        output.backward(dy)
        entry.update(output=numbers(output), dy=numbers(dy))
    entry.update(dx=[numbers(x.grad) if x.requires_grad else [] for x in inputs], gradients=[numbers(p.grad) for p in params])
    if buffers is not None:
        entry.update(buffers=[numbers(b) for b in buffers])
    return entry


def convolutions():
    def conv(arguments, shape, samples, out, kernel, bias=True, groups=1, **options):
        parameters = [(out, shape[2] // groups, *kernel)] + ([(out,)] if bias else [])
        return case("conv2d", arguments, [shape], samples,
                    lambda x, p: F.conv2d(x[0], p[0], p[1] if bias else None, groups=groups, **options), parameters)
    yield conv("{out_channels: 3, kernel_size: 3}", (5, 4, 2), 2, 3, (3, 3))
    yield conv("{out_channels: 2, kernel_size: 3, padding: same}", (5, 3, 3), 1, 2, (3, 3), padding="same")
    yield conv("{out_channels: 2, kernel_size: 4, padding: same}", (5, 3, 2), 1, 2, (4, 4), padding="same")
    yield conv("{out_channels: 3, kernel_size: [3, 2], stride: [2, 1], padding: [1, 0], bias: false}", (5, 5, 2), 2, 3, (3, 2),
               bias=False, stride=(2, 1), padding=(1, 0))
    yield conv("{out_channels: 2, kernel_size: 3, dilation: 2, padding: 2}", (5, 4, 3), 1, 2, (3, 3), dilation=2, padding=2)
    yield conv("{out_channels: 4, kernel_size: 3, groups: 2, padding: 1}", (3, 4, 4), 2, 4, (3, 3), groups=2, padding=1)
    yield conv("{out_channels: 4, kernel_size: 3, groups: 4, padding: 1, stride: 2}", (5, 5, 4), 1, 4, (3, 3), groups=4, padding=1,
               stride=2)
    yield conv("{out_channels: 3, kernel_size: 1, stride: 3}", (7, 5, 3), 2, 3, (1, 1), stride=3)


def pools():
    def pool(kind, arguments, shape, samples, run):
        return case(kind, arguments, [shape], samples, lambda x, p: run(x[0]))
    for kind, f in (("max_pool2d", F.max_pool2d), ("avg_pool2d", F.avg_pool2d)):
        yield pool(kind, "{kernel_size: 2}", (5, 4, 3), 2, lambda x, f=f: f(x, 2))
        yield pool(kind, "{kernel_size: 3, stride: 2, padding: 1}", (5, 7, 2), 1, lambda x, f=f: f(x, 3, 2, 1))
        yield pool(kind, "{kernel_size: [2, 3], stride: [3, 1], padding: [1, 0]}", (5, 4, 2), 2,
                   lambda x, f=f: f(x, (2, 3), (3, 1), (1, 0)))
    yield pool("avg_pool2d", "{kernel_size: 3, stride: 2, padding: 1, count_include_pad: false}", (5, 5, 2), 2,
               lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False))
    yield pool("global_avg_pool", "", (3, 5, 4), 2, lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1))


def dense():
    yield case("linear", "{out_features: 3}", [(5,)], 4, lambda x, p: F.linear(x[0], *p), [(3, 5), (3,)])
    yield case("linear", "{out_features: 4, bias: false}", [(3, 5)], 2, lambda x, p: F.linear(x[0], *p), [(4, 5)])
    for arguments, options in (("", {}), ("{eps: 0.01, momentum: 0.3}", dict(eps=0.01, momentum=0.3))):
        norm = nn.BatchNorm2d(3, affine=False, **options)
        yield case("batch_norm", arguments, [(3, 2, 3)], 4, lambda x, p: norm(x[0]) * p[0][:, None, None] + p[1][:, None, None],
                   [(3,), (3,)], [norm.running_mean, norm.running_var])
    flat = nn.BatchNorm1d(5, affine=False)
    yield case("batch_norm", "{affine: false}", [(5,)], 6, lambda x, p: flat(x[0]), [], [flat.running_mean, flat.running_var])


def norms():
    """Those that look at one sample alone; what is drawn before and after keeps its numbers."""
    state = torch.get_rng_state()
    torch.manual_seed(11)
    for arguments, eps in (("", 1e-5), ("{eps: 0.01}", 0.01)):
        yield case("layer_norm", arguments, [(3, 7)], 2, lambda x, p, e=eps: F.layer_norm(x[0], (7,), *p, e), [(7,), (7,)])
    yield case("layer_norm", "{affine: false}", [(18,)], 3, lambda x, p: F.layer_norm(x[0], (18,)))
    rms = lambda x, eps: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    yield case("rms_norm", "{eps: 0.01}", [(3, 7)], 2, lambda x, p: rms(x[0], 0.01) * p[0], [(7,)])
    yield case("rms_norm", "{affine: false}", [(18,)], 3, lambda x, p: rms(x[0], torch.finfo(torch.float32).eps))
    for groups in (1, 2, 6):
        yield case("group_norm", f"{{num_groups: {groups}}}", [(3, 2, 6)], 2, lambda x, p, g=groups: F.group_norm(x[0], g, *p),
                   [(6,), (6,)])
    yield case("instance_norm", "", [(3, 4, 5)], 2, lambda x, p: F.instance_norm(x[0]))
    yield case("instance_norm", "{affine: true, eps: 0.01}", [(3, 2, 4)], 2,
               lambda x, p: F.instance_norm(x[0], weight=p[0], bias=p[1], eps=0.01), [(4,), (4,)])
    torch.set_rng_state(state)


def pointwise():
    for kind, arguments, f in (("relu", "", F.relu), ("leaky_relu", "", F.leaky_relu),
                               ("leaky_relu", "{negative_slope: 0.3}", lambda x: F.leaky_relu(x, 0.3)), ("gelu", "", F.gelu),
                               ("gelu", "{approximate: tanh}", lambda x: F.gelu(x, approximate="tanh")), ("silu", "", F.silu),
                               ("sigmoid", "", torch.sigmoid), ("tanh", "", torch.tanh)):
        yield case(kind, arguments, [(3, 7)], 2, lambda x, p, f=f: f(x[0]))
    yield case("flatten", "", [(2, 3, 4)], 2, lambda x, p: from_torch(x[0]).flatten(1))
    yield case("add", "", [(3, 5)] * 3, 2, lambda x, p: x[0] + x[1] + x[2])
    yield case("concat", "", [(2, 3, 2), (2, 3, 5)], 2, lambda x, p: torch.cat(x, 1))


def losses():
    for arguments, smoothing in (("", 0.0), ("{label_smoothing: 0.1}", 0.1)):
        yield case("cross_entropy", arguments, [(7,)], 5, lambda x, p, s=smoothing: F.cross_entropy(
            x[0], x[1], reduction="none", label_smoothing=s), target=torch.tensor([0, 6, 3, 3, 1]))
    yield case("mse", "", [(2, 3)] * 2, 3, lambda x, p: F.mse_loss(x[0], x[1], reduction="none").flatten(1).mean(1))


class Flatten(nn.Module):
    def forward(self, x):
        return from_torch(x).flatten(1)


def training():
    """A small network, 20 steps of SGD with momentum and weight decay on one mini-batch of 8: the losses."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.GELU(), Flatten(), nn.Linear(36, 5))
    x, y = torch.randn(8, 6, 6, 2), torch.randint(0, 5, (8,))
    state = {name: dict(shape=list(p.shape), values=numbers(p)) for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    result = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(to_torch(x)), y)
        loss.backward()
        optimizer.step()
        result.append(float(f"{float(loss):.9g}"))
    return dict(
        network=["conv2d: {out_channels: 4, kernel_size: 3, padding: same}", "batch_norm", "relu", "max_pool2d: {kernel_size: 2}",
                 "conv2d: {out_channels: 4, kernel_size: 3, padding: 1, bias: false}", "gelu", "flatten",
                 "linear: {out_features: 5}"],
        note="parameters are named by the index of their layer in the list; weight decay is PyTorch's, on all of them",
        learning_rate=0.05, momentum=0.9, weight_decay=1e-3, samples=8, input_shape=[6, 6, 2], inputs=numbers(x),
        targets=y.tolist(), parameters=state, losses=result,
        final={name: dict(shape=list(p.shape), values=numbers(p)) for name, p in model.state_dict().items()
               if not name.endswith("num_batches_tracked")})


def write(name, value):
    with open(os.path.join(HERE, name), "w") as file:
        file.write(json.dumps(value, separators=(",", ":")).replace("},{", "},\n{") + "\n")


if __name__ == "__main__":
    cases = [c for make in (convolutions, pools, dense, pointwise, losses, norms) for c in make()]
    write("nodes.json", dict(torch=torch.__version__, cases=cases))
    write("training.json", dict(torch=torch.__version__, **training()))
