"""Attention with heads and batch sharded over four devices, compared with one; run by `test_sharding`.

Prints one line of JSON: by implementation and case, the largest difference from one device and the collectives of the
compiled forward pass.
"""

import json
import re
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mha_jax.projections import multi_head_attention
from tests.mha_jax.flax_layers import normal

COLLECTIVES = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
BATCH, LENGTH, FEATURES, HEADS, KV_HEADS, DIM = 4, 13, 10, 4, 2, 3


def collectives(compiled):
    """Names of the collectives of a program, each as often as it is there (a started one counts once)."""
    return re.findall(rf"= [^=\n]*? ({COLLECTIVES})(?:-start)?\(", compiled.as_text())


def main():
    mesh = jax.make_mesh((2, 2), ("data", "heads"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    params = {
        "query": {"kernel": normal(0, HEADS, FEATURES, DIM)},
        "key": {"kernel": normal(1, KV_HEADS, FEATURES, DIM)},
        "value": {"kernel": normal(2, KV_HEADS, FEATURES, DIM)},
        "out": {"kernel": normal(3, HEADS, DIM, FEATURES)},
    }
    params = jax.tree.map(lambda x: jnp.asarray(0.3 * x), params)
    x = jnp.asarray(normal(4, BATCH, LENGTH, FEATURES))
    lengths = jnp.array([13, 7, 1, 0])
    specs = jax.tree.map(lambda _: P("heads"), params)
    placed = jax.device_put(
        (params, x, lengths), jax.tree.map(partial(NamedSharding, mesh), (specs, P("data"), P("data")))
    )

    out = {}
    for implementation in "dense", "blockwise":

        def forward(params, x, lengths, implementation=implementation):
            return multi_head_attention(
                params, x, is_causal=True, key_value_seq_lengths=lengths, implementation=implementation
            )

        def per_device(params, x, lengths, forward=forward):
            return jax.lax.psum(forward(params, x, lengths), "heads")

        mapped = jax.shard_map(
            per_device, mesh=mesh, in_specs=(specs, P("data"), P("data")), out_specs=P("data")
        )

        def both(f):
            def loss(params, x, lengths):
                output = f(params, x, lengths)
                return jnp.sum(jnp.sin(output)), output

            return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))

        expected = jax.device_get(both(forward)(params, x, lengths))
        for name, f in ("jit", forward), ("shard_map", mapped):
            found = both(f)(*placed)
            compiled = jax.jit(f).lower(*placed).compile()
            host = jax.device_get(found)
            errors = jax.tree.map(lambda a, b: float(np.abs(a - b).max() / np.abs(b).max()), host, expected)
            out[f"{implementation} {name}"] = {
                "error": max(jax.tree.leaves(errors)),
                "finite": all(bool(np.all(np.isfinite(a))) for a in jax.tree.leaves(host)),
                "collectives": collectives(compiled),
                "sharding": [
                    str(leaf.sharding.spec) for leaf in (found[1], found[0][1], *jax.tree.leaves(found[0][0]))
                ],
            }
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
