"""A transformer learns a text, character by character: examples/characters.py [--device cpu]."""

from pathlib import Path

import numpy as np
import report

from tensai.autograd import Parameter, cross_entropy, no_grad, recorded
from tensai.optim import AdamW, clip_grad_norm_

LENGTH, DIM, HEADS, LAYERS, BATCH = 48, 48, 4, 2, 12
options = report.arguments(__doc__, steps=300)
dev = report.device(options)
rng = np.random.default_rng(options.seed)
text = Path(__file__).with_name("mill.txt").read_text(encoding="utf-8")
letters, codes = np.unique(list(text), return_inverse=True)
weights = []


def weight(*shape, scale=0.08):
    weights.append(Parameter(dev.upload(rng.normal(0, scale, shape))))
    return weights[-1]


letter, place, last = weight(len(letters), DIM), weight(LENGTH, DIM), weight(DIM, scale=0)
wide = ((DIM, DIM),) * 4 + ((DIM, 4 * DIM), (4 * DIM, DIM))
layers = [([weight(*s) for s in wide], weight(DIM, scale=0)) for _ in range(LAYERS)]


def model(codes):
    x = dev.embed(letter, codes) + place[: codes.shape[1]]
    for (q, k, v, o, up, down), norm in layers:
        h = x.rms_norm(norm + 1)
        x = x + (h @ q).attention(h @ k, h @ v, heads=HEADS, causal=True) @ o
        x = x + (x.rms_norm(norm + 1) @ up).gelu() @ down
    return x.rms_norm(last + 1).matmul_t(letter)


@recorded
def step(x, y):
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    clip_grad_norm_(weights, 1.0)
    optimizer.step()
    return loss


optimizer = AdamW(weights, lr=4e-3, schedule=lambda step: min(1, (step + 1) / 20))
progress = report.Progress(options.steps)
for _ in range(options.steps):
    at = rng.integers(0, len(codes) - LENGTH, (BATCH, 1)) + np.arange(LENGTH)
    progress.add(step(dev.upload(codes[at]), dev.upload(codes[at + 1])))
print(f"loss {progress.curve(options.plot)[-1]:.3f} on {dev.name}")
written = list(codes[:8])
with no_grad():
    for _ in range(60):
        written.append(int(model(dev.upload(np.array([written[-LENGTH:]])))[0, -1].argmax()))
print("".join(letters[code] for code in written))
