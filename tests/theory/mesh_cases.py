"""Run by `test_training_sharded` in processes of their own that have several devices; prints JSON."""

import json
import re
import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from theory.problems import make_problem
from theory.training import PLAIN, JointOptions, train_joint
from theory.training.sharded import arguments, make_mesh, optimise_on_mesh, train_joint_on_mesh

HEADS, DIM, SEEDS = 4, 3, 2
OPTIONS = {
    "max": replace(PLAIN, max_steps=100),
    "sum": replace(PLAIN, max_steps=100, aggregation="sum"),
    "soft": JointOptions(max_steps=100),
}


def problems(num_items=22):
    made = [
        make_problem(
            num_items=num_items,
            num_edges=num_items,
            d_model=7,
            embedding="gaussian",
            graph="permutation",
            seed=seed,
        )
        for seed in range(SEEDS)
    ]
    return np.stack([p.embeddings for p in made]), np.stack([p.graph.adjacency() for p in made])


def sizes(kind="max"):
    return {"num_heads": HEADS, "head_dim": DIM, "seeds": range(SEEDS), "options": OPTIONS[kind]}


def described(channels):
    return [
        {
            "query": channel.query_weights.tolist(),
            "key": channel.key_weights.tolist(),
            "threshold": channel.threshold,
            "loss": channel.loss,
            "steps": channel.steps,
        }
        for channel in channels
    ]


def collectives(shape, kind):
    """Collectives of a mesh's program, as a list for each of its computations that has any."""
    mesh = mesh_of(shape)
    arrays, settings = arguments(*problems(), mesh=mesh, max_head_dim=DIM, **sizes(kind))
    program = optimise_on_mesh.lower(*arrays, **settings).compile()
    kinds = "all-reduce|all-gather|collective-permute|all-to-all|reduce-scatter"
    found = [
        re.findall(rf"= .*? ({kinds})(?:-start)?\(", computation)
        for computation in re.split(r"\n\n", program.as_text() or "")
        if not computation.lstrip().startswith("ENTRY")
    ]
    return sorted(kinds for kinds in found if kinds)


def allocated(shape, *, num_items, d_model, num_heads, head_dim, seeds):
    """Bytes that the program of a mesh takes on each device: arguments, results and temporaries."""
    rng = np.random.default_rng(0)
    items = rng.standard_normal((seeds, num_items, d_model))
    edges = np.broadcast_to(np.roll(np.eye(num_items, dtype=bool), 1, axis=1), (seeds, num_items, num_items))
    sizes = {"num_heads": num_heads, "head_dim": head_dim, "seeds": range(seeds), "max_head_dim": head_dim}
    arrays, settings = arguments(items, edges, mesh=mesh_of(shape), options=OPTIONS["max"], **sizes)
    found = optimise_on_mesh.lower(*arrays, **settings).compile().memory_analysis()
    assert found is not None
    return (
        found.temp_size_in_bytes
        + found.argument_size_in_bytes
        + found.output_size_in_bytes
        - found.alias_size_in_bytes
    )


def mesh_of(shape):
    return make_mesh(shape, jax.devices()[: int(np.prod(list(shape.values())))])


def main(words):
    out: Any
    if words[0] == "memory":
        out = [allocated(shape, **size) for shape, size in json.loads(words[1])]
    elif words[0] == "one process":
        kinds = words[2:]
        out = {"one device": {a: described(train_joint(*problems(), **sizes(a))) for a in kinds}}
        for shape in json.loads(words[1]):
            mesh = mesh_of(shape)
            out[json.dumps(shape)] = {
                a: {
                    "collectives": collectives(shape, a),
                    "channels": described(train_joint_on_mesh(*problems(), mesh=mesh, **sizes(a))),
                }
                for a in kinds
            }
    else:
        jax.distributed.initialize(words[1], 2, int(words[2]))
        mesh = make_mesh(json.loads(words[3]))
        out = {"devices": [jax.local_device_count(), jax.device_count()]}
        out["channels"] = described(train_joint_on_mesh(*problems(), mesh=mesh, **sizes()))
    print("RESULT" + json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1:])
