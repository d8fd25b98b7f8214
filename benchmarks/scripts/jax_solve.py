"""Least squares and an ordinary differential equation with JAX, eager calls and a scan."""

import jax
from jax import numpy as jnp
from jax.numpy import linalg

key = jax.random.PRNGKey(1)
a = jax.random.normal(key, (600, 600))
for power in range(3):
    u, s, vt = linalg.svd(a, full_matrices=False)
    a = jnp.dot(u * s, vt) / jnp.max(s)
    print(power, float(s[0]), float(linalg.norm(a)))


def oscillate(state, _):
    position, speed = state
    speed = speed - 0.001 * position
    return (position + 0.001 * speed, speed), position


final, path = jax.lax.scan(oscillate, (jnp.ones(1000), jnp.zeros(1000)), None, length=2000)
print(path.shape, float(jnp.mean(path[-1])))
solutions = [linalg.solve(a + n * jnp.eye(600), jnp.ones(600)).block_until_ready() for n in range(1, 6)]
print(jnp.stack(solutions).sum())
