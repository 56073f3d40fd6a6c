"""Handwritten digits (scikit-learn's 1,797 images of 8 x 8): two layers, over 97% right.

python examples/digits.py [--device cpu] [--plot loss.png]
"""

import numpy as np
import report
from sklearn.datasets import load_digits

from tensai.autograd import Parameter, cross_entropy, no_grad, recorded
from tensai.optim import AdamW

options = report.arguments(__doc__, steps=600)
dev = report.device(options)
rng = np.random.default_rng(options.seed)

images, labels = load_digits(return_X_y=True)
images = (images / 16 - 0.3).astype(np.float32)
order = np.random.default_rng(0).permutation(len(images))
test, train = order[:360], order[360:]

w1 = Parameter(dev.upload(rng.normal(0, 64**-0.5, (64, 128))))
w2 = Parameter(dev.upload(rng.normal(0, 128**-0.5, (128, 10))))
b1, b2 = Parameter(dev.zeros(128)), Parameter(dev.zeros(10))
optimizer = AdamW([w1, b1, w2, b2], lr=3e-3, schedule=lambda step: 0.995**step)


def model(x):
    return (x @ w1 + b1).gelu() @ w2 + b2


@recorded
def step(x, y):
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


progress = report.Progress(options.steps)
for _ in range(options.steps):
    batch = rng.choice(train, 128, replace=False)
    x, y = dev.upload(images[batch]), dev.upload(labels[batch].astype(np.int32))
    progress.add(step(x, y))
losses = progress.curve(options.plot)

with no_grad():
    guesses = model(dev.upload(images[test])).argmax(axis=1).download()
accuracy = (guesses == labels[test]).mean()
print(f"loss {losses[-1]:.4f}, test accuracy {accuracy:.1%} on {dev.name}")
