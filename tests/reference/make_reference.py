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
    """run(inputs in PyTorch's layout, parameters) -> output in PyTorch's layout. `target`: a last input, of integers."""
    inputs = [torch.randn(samples, *shape, requires_grad=True) for shape in shapes]
    if target is not None:
        inputs.append(target)
    params = [torch.randn(*shape, requires_grad=True) for shape in parameters]
    output = from_torch(run([to_torch(x) if x.is_floating_point() else x for x in inputs], params))
    dy = torch.randn_like(output) if output.is_floating_point() else None
    entry = dict(type=kind, arguments=arguments, samples=samples,
                 shapes=[list(x.shape[1:]) for x in inputs],
                 integers=[i for i, x in enumerate(inputs) if not x.is_floating_point()],
                 inputs=[numbers(x.float()) for x in inputs], parameters=[numbers(p) for p in params])
    if kind in ("cross_entropy", "mse"):  # output: the loss of each sample
        targets = samples if kind == "mse" else int((target != -100).sum())
        (output.sum() / targets).backward()
        entry.update(losses=numbers(output), targets=targets)
    elif not output.requires_grad:  # integers
        entry.update(output=numbers(output.float()), dy=numbers(torch.zeros_like(output).float()))
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


def later():
    """Nodes that came later: what is drawn before and after keeps its numbers."""
    state = torch.get_rng_state()
    torch.manual_seed(12)
    yield from transposed_convolutions()
    yield from moves()
    for arguments, options in (("{min: -0.5, max: 0.25}", dict(min=-0.5, max=0.25)), ("{magnitude: 0.7}", dict(min=-0.7, max=0.7)),
                               ("{max: 0.1}", dict(max=0.1))):
        yield case("clip", arguments, [(3, 7)], 2, lambda x, p, o=options: torch.clamp(x[0], **o))
    yield case("scale", "{factor: -0.3}", [(3, 7)], 2, lambda x, p: x[0] * -0.3)
    yield case("scale", "{learned: channels}", [(3, 7)], 2, lambda x, p: x[0] * p[0], [(7,)])
    yield case("softmax", "", [(3, 7)], 2, lambda x, p: torch.softmax(x[0], -1))
    torch.set_rng_state(state)


def transposed_convolutions():
    for arguments, shape, out, kernel, options in (
            ("", (3, 4, 2), 3, (3, 3), {}),
            (", stride: 2, bias: false", (3, 5, 4), 2, (2, 2), dict(stride=2)),
            (", stride: 2, padding: 1, output_padding: 1", (4, 3, 2), 3, (3, 3), dict(stride=2, padding=1, output_padding=1)),
            (", stride: [3, 1], padding: [1, 0], output_padding: [2, 0]", (3, 4, 2), 2, (2, 3),
             dict(stride=(3, 1), padding=(1, 0), output_padding=(2, 0))),
            (", dilation: 2, padding: 2, groups: 2", (4, 5, 4), 6, (3, 3), dict(dilation=2, padding=2, groups=2))):
        bias = "bias: false" not in arguments
        parameters = [(shape[2], out // options.get("groups", 1), *kernel)] + ([(out,)] if bias else [])
        yield case("conv_transpose2d", f"{{out_channels: {out}, kernel_size: {list(kernel)}{arguments}}}", [shape], 2,
                   lambda x, p, b=bias, o=options: F.conv_transpose2d(x[0], p[0], p[1] if b else None, **o), parameters)


def moves():
    def move(kind, arguments, shape, run):  # run works on the product's layout
        return case(kind, arguments, [shape], 2, lambda x, p: to_torch(run(from_torch(x[0]))))
    for size in ("scale_factor: 2", "scale_factor: [3, 2]", "scale_factor: 1.7", "scale_factor: 0.6", "size: [7, 3]", "size: 5"):
        key, value = size.split(": ")
        for mode, corners in (("nearest", None), ("bilinear", False), ("bilinear", True)):
            extent = json.loads(value)
            up = nn.Upsample(mode=mode, align_corners=corners, **{key: tuple(extent) if isinstance(extent, list) else extent})
            more = f", mode: {mode}" + ("" if corners is None else f", align_corners: {str(corners).lower()}")
            yield case("upsample", f"{{{size}{more}}}", [(5, 3, 2)], 2, lambda x, p, f=up: f(x[0]))
    yield move("pad", "{padding: [1, 0, 2, 3], value: 0.5}", (3, 4, 2), lambda x: F.pad(x, (0, 0, 2, 3, 1, 0), value=0.5))
    yield move("pad", "{padding: [-1, 1, -1, 1]}", (3, 4, 2), lambda x: F.pad(x, (0, 0, -1, 1, -1, 1)))
    yield move("pad", "{padding: [1, 2]}", (3, 4), lambda x: F.pad(x, (0, 0, 1, 2)))
    yield move("crop", "{cropping: [1, 0, 1, 2]}", (4, 5, 3), lambda x: x[:, 1:, 1:-2])
    yield move("crop", "{size: [2, 3]}", (5, 5, 2), lambda x: x[:, 1:3, 1:4])
    yield move("slice", "{begin: 1, end: -1}", (3, 2, 5), lambda x: x[..., 1:-1])
    yield move("slice", "{axis: 0, begin: -2}", (3, 2, 5), lambda x: x[:, -2:])
    yield move("reshape", "{shape: [2, -1]}", (3, 2, 5), lambda x: x.reshape(-1, 2, 15))
    yield move("transpose", "{axes: [1, 2, 0]}", (3, 2, 5), lambda x: x.permute(0, 2, 3, 1))
    yield move("transpose", "{swap: [0, -1]}", (3, 2, 5), lambda x: x.transpose(1, -1))


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


def sequences():
    """Token ids, positions and targets at each position."""
    state = torch.get_rng_state()
    torch.manual_seed(13)
    for arguments, smoothing in (("", 0.0), ("{label_smoothing: 0.1}", 0.1)):
        target = torch.tensor([[0, 6, -100, 3], [-100, 1, 2, 5], [4, -100, -100, 0]])
        yield case("cross_entropy", arguments, [(4, 7)], 3, lambda x, p, s=smoothing: F.cross_entropy(
            x[0].transpose(1, 2), x[1], reduction="none", label_smoothing=s).sum(1), target=target)
    ids = torch.tensor([[4, 0, 2, 2, 1], [2, 3, 4, 4, 2]])
    for arguments, padding, scale in (("{num_embeddings: 5, embedding_dim: 3}", None, 1),
                                      ("{num_embeddings: 5, embedding_dim: 3, padding_idx: 2, scale: 1.5}", 2, 1.5)):
        def embed(x, p, padding=padding, scale=scale):
            return F.embedding(x[0], p[0], padding_idx=padding) * scale
        yield case("embedding", arguments, [], 2, embed, [(5, 3)], target=ids)
    yield case("positions", "{max_length: 6}", [(4, 3)], 2, lambda x, p: x[0] + p[0][:4], [(6, 3)])
    t, i = torch.arange(5.0)[:, None], torch.arange(3.0)
    table = torch.stack([torch.sin(t / 10000 ** (2 * i / 6)), torch.cos(t / 10000 ** (2 * i / 6))], 2).flatten(1)
    yield case("positions", "{kind: sinusoidal}", [(5, 6)], 2, lambda x, p: x[0] + table)
    target = torch.tensor([[4, 2, -100, 3], [2, 1, -100, -100]])
    yield case("shift_tokens", "{start: 9, padding: 7}", [], 2, lambda x, p: torch.cat(
        [torch.full((2, 1), 9), torch.where(x[0] < 0, 7, x[0])[:, :-1]], 1), target=target)
    yield from attention()
    torch.set_rng_state(state)


def attention():
    """nn.MultiheadAttention itself, given our parameters."""
    def attend(heads, channels, bias, causal, tokens):
        module = nn.MultiheadAttention(channels, heads, bias=bias, batch_first=True)

        def run(x, p):
            for holder, name, value in zip(*layout(module, bias), p):
                del holder._parameters[name]
                setattr(holder, name, value)
            source = x[1] if len(x) - tokens == 2 else x[0]
            mask = torch.ones(x[0].shape[1], source.shape[1], dtype=torch.bool).triu(1) if causal else None
            return module(x[0], source, source, key_padding_mask=x[-1] == 0 if tokens else None, attn_mask=mask)[0]
        return run

    def layout(module, bias):
        if bias:
            return (module, module, module.out_proj, module.out_proj), ("in_proj_weight", "in_proj_bias", "weight", "bias")
        return (module, module.out_proj), ("in_proj_weight", "weight")

    def one(arguments, shapes, samples, heads, bias=True, causal=False, target=None):
        c = shapes[0][1]
        parameters = [(3 * c, c), (3 * c,), (c, c), (c,)] if bias else [(3 * c, c), (c, c)]
        return case("attention", arguments, shapes, samples, attend(heads, c, bias, causal, target is not None), parameters,
                    target=target)

    yield one("{heads: 2}", [(5, 6)], 2, 2)
    yield one("{heads: 3, causal: true, bias: false}", [(7, 6)], 2, 3, bias=False, causal=True)
    yield one("{heads: 2}", [(3, 4), (5, 4)], 2, 2)
    yield one("{heads: 2, causal: true, padding: 0}", [(4, 6)], 2, 2, causal=True, target=torch.tensor([[3, 1, 0, 0], [2, 5, 1, 0]]))
    yield one("{heads: 1, padding: 0}", [(3, 4), (5, 4)], 2, 1, target=torch.tensor([[3, 0, 0, 0, 0], [2, 5, 1, 7, 0]]))


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
    cases = [c for make in (convolutions, pools, dense, pointwise, losses, norms, later, sequences) for c in make()]
    write("nodes.json", dict(torch=torch.__version__, cases=cases))
    write("training.json", dict(torch=torch.__version__, **training()))
