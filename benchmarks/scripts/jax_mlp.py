"""Train a network with JAX: jit, grad, vmap, and a plain loop."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np


def init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (a, b)) * np.sqrt(2 / a), jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:])
    ]


def predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_of(params, x, y):
    logits = jax.vmap(predict, in_axes=(None, 0))(params, x)
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, axis=1))


@functools.partial(jax.jit, static_argnames="rate")
def update(params, x, y, rate=0.1):
    value, grads = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree_util.tree_map(lambda p, g: p - rate * g, params, grads), value


def main(steps):
    params = init(jax.random.PRNGKey(0), [256, 512, 512, 10])
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((4096, 256)), dtype=jnp.float32)
    y = jax.nn.one_hot(jnp.asarray(rng.integers(0, 10, 4096)), 10)
    for step in range(steps):
        at = rng.integers(0, 4096, 512)
        params, value = update(params, x[at], y[at])
        if step % 50 == 0:
            print(step, float(value))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
