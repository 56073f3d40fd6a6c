"""XOR with two layers: the smallest thing that one layer cannot learn.

python examples/xor.py [--device cpu] [--plot loss.png]
"""

import numpy as np
import report

from tensai.autograd import Parameter, mse_loss, recorded
from tensai.optim import Adam

options = report.arguments(__doc__, steps=300)
dev = report.device(options)
rng = np.random.default_rng(options.seed)

x = dev.upload(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32))
y = dev.upload(np.array([[0], [1], [1], [0]], np.float32))
w1, b1 = Parameter(dev.upload(rng.normal(0, 1, (2, 8)))), Parameter(dev.zeros(8))
w2, b2 = Parameter(dev.upload(rng.normal(0, 1, (8, 1)))), Parameter(dev.zeros(1))
optimizer = Adam([w1, b1, w2, b2], lr=0.05)


def model(x):
    return (x @ w1 + b1).tanh() @ w2 + b2


@recorded
def step(x, y):
    optimizer.zero_grad()
    loss = mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


progress = report.Progress(options.steps)
for _ in range(options.steps):
    progress.add(step(x, y))
losses = progress.curve(options.plot)

answers = model(x).download()[:, 0]
print(f"loss {losses[-1]:.6f}, answers {np.round(answers, 2).tolist()}")
