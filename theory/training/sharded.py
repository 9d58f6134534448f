"""Joint training over several devices, and several machines: one run that is larger than a device.

A mesh has three axes. Seeds (problems) lie along ``data``, heads along ``head``, the rows of the score matrix (items as
sources) along ``row``: a device scores its rows against all items with its heads, for its seeds. What it then needs of
others, at every step:

- over ``head``: the best score of every pair and which device has it, two all-reduces of the local ``(t, m)`` scores of
  each seed; the gradient of a pair goes to its winner alone, so that nothing is sent backwards. While the maximum is
  soft: the best of the devices' soft maxima and the sum of their exponentials, two as well, and each device's share of
  the gradient is known to it but for that of the logits' scale, a sum of one number;
- over ``row``: the sum of gradients and losses, one all-reduce of what a device has of the weights;
- over ``data``: nothing; once in ``check_every`` steps all devices agree on whether to go on.

An axis of size 1 costs nothing. The loop is `theory.training.joint`'s own, with other sums, so results agree with one
device up to the rounding of sums in another order. Greedy training and polish are not spread: heads come one after the
other there.

Source: ours. Scaling: docs/scaling.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from theory.channel import max_over_heads, project, soft_max_over_heads, sum_over_heads
from theory.training.joint import Scalars, channels_of, initial_params, optimise, scalars_of, static_of
from theory.training.joint_loss import Params, Whole, edge_weight
from theory.training.joint_options import JointOptions, Setting
from theory.training.types import Channel, check_batch

AXES = ("data", "head", "row")


def make_mesh(shape: Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of the given sizes along `AXES` (1 where none is given), on all devices of all processes.

    Raises:
        ValueError: for another axis, a size that is not positive, or a product that is not the number of devices.
    """
    unknown = set(shape) - set(AXES)
    if unknown:
        raise ValueError(f"mesh: expected axes of {', '.join(AXES)}, got {', '.join(sorted(unknown))}")
    sizes = tuple(shape.get(name, 1) for name in AXES)
    if min(sizes) < 1:
        raise ValueError(f"mesh: expected positive sizes, got {dict(shape)}")
    found = list(jax.devices() if devices is None else devices)
    if int(np.prod(sizes)) != len(found):
        raise ValueError(f"mesh: expected as many places as the {len(found)} devices, got {dict(shape)}")
    return Mesh(np.array(found).reshape(sizes), AXES)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _best(scores: Array, heads: int) -> Array:
    """The best score over all devices of the head axis; its gradient goes to the first device that has it."""
    return lax.pmax(scores, "head")


def _best_forward(scores: Array, heads: int):
    best = lax.pmax(scores, "head")
    mine = lax.axis_index("head")
    winner = lax.pmin(jnp.where(scores == best, mine, heads), "head")
    return best, winner == mine


def _best_backward(heads: int, wins: Array, gradient: Array):
    return (jnp.where(wins, gradient, jnp.zeros((), gradient.dtype)),)


_best.defvjp(_best_forward, _best_backward)


@jax.custom_vjp
def _soft_best(soft: Array, temperature: Array) -> Array:
    """The soft maximum over all devices of the head axis, of theirs; each gets the gradient's share of its heads."""
    return _soft_best_forward(soft, temperature)[0]


def _soft_best_forward(soft: Array, temperature: Array):
    best = lax.pmax(soft, "head")
    total = best + temperature * jnp.log(lax.psum(jnp.exp((soft - best) / temperature), "head"))
    return total, (jnp.exp((soft - total) / temperature), temperature)


def _soft_best_backward(residuals: tuple[Array, Array], gradient: Array):
    share, temperature = residuals
    return gradient * share, jnp.zeros_like(temperature)


_soft_best.defvjp(_soft_best_forward, _soft_best_backward)


@jax.custom_vjp
def _total(scores: Array) -> Array:
    """The sum over all devices of the head axis; each of them gets the whole gradient."""
    return lax.psum(scores, "head")


_total.defvjp(lambda scores: (lax.psum(scores, "head"), None), lambda _, gradient: (gradient,))


class _Shared(Whole):
    """How a device computes that has some rows and heads of a problem."""

    def __init__(self, mesh: Mesh, num_edges: int) -> None:
        self._sizes = dict(mesh.shape)
        self._num_edges = num_edges

    def _over(self, reduce, values, axis: str):
        return reduce(values, axis) if self._sizes[axis] > 1 else values

    def logits(
        self, params: Params, x: Array, edges: Array, setting: Setting, temperature: Array | None
    ) -> Array:
        """Of this device's rows, over the heads of all devices."""
        rows = edges.shape[0]
        own = lax.dynamic_slice_in_dim(x, lax.axis_index("row") * rows, rows, 0)
        queries, keys = project(own, params["query"]), project(x, params["key"])
        scale, alone = jnp.exp(params["log_scale"]), self._sizes["head"] == 1
        if setting.aggregation == "sum":
            scores = sum_over_heads(queries, keys)
            return scale * jnp.asarray(scores if alone else _total(scores)) - params["offset"]
        if temperature is None:
            scores = max_over_heads(queries, keys)[0]
            best = scores if alone else _best(scores, self._sizes["head"])
            return scale * jnp.asarray(best) - params["offset"]
        soft = soft_max_over_heads(scale * queries, keys, temperature)
        return jnp.asarray(soft if alone else _soft_best(soft, temperature)) - params["offset"]

    def total_weight(self, x: Array, edges: Array, weight: Array) -> Array:
        """Of all rows, not this device's alone."""
        return weight * self._num_edges + (x.shape[0] ** 2 - self._num_edges)

    def over_rows(self, reduce, values):
        """One all-reduce where rows are shared out."""
        return self._over(reduce, values, "row")

    def loss_and_gradient(
        self, params: Params, x: Array, edges: Array, weight: Array, setting: Setting, temperature: Array
    ) -> tuple[Array, Params]:
        """As on one device; the scale of the logits lies before the soft maximum, so each has its heads' part."""
        loss, gradient = super().loss_and_gradient(params, x, edges, weight, setting, temperature)
        if setting.soft:
            gradient = gradient | {"log_scale": self._over(lax.psum, gradient["log_scale"], "head")}
        return loss, gradient

    def all_done(self, done: Bool[Array, " b"]) -> Bool[Array, ""]:
        """All devices have to take the same number of steps."""
        return self._over(lax.pmin, jnp.all(done).astype(jnp.int32), "data") == 1


_WEIGHTS = {"query": P("data", "head"), "key": P("data", "head"), "log_scale": P("data"), "offset": P("data")}


@partial(jax.jit, static_argnames=("mesh", "num_edges", "max_steps", "check_every", "setting"))
def optimise_on_mesh(
    params: Params,
    embeddings: Float[Array, "b m d"],
    adjacency: Bool[Array, "b m m"],
    scalars: Scalars,
    *,
    mesh: Mesh,
    num_edges: int,
    max_steps: int,
    check_every: int,
    setting: Setting,
) -> tuple[Params, Array, Array]:
    """The weights that the runs kept, their losses and steps, on all devices; the compiled program of a mesh."""
    static = {"max_steps": max_steps, "check_every": check_every, "setting": setting}

    def local(params, x, a, scalars):
        runs = optimise(params, x, a, scalars, **static, way=_Shared(mesh, num_edges))
        return runs.kept, runs.loss, runs.steps

    found = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(_WEIGHTS, P("data"), P("data", "row"), P()),
        out_specs=(_WEIGHTS, P("data"), P("data")),
        check_vma=False,
    )(params, embeddings, adjacency, scalars)
    everywhere = NamedSharding(mesh, P())
    return jax.tree.map(lambda leaf: lax.with_sharding_constraint(leaf, everywhere), found)


def arguments(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    mesh: Mesh,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int,
    options: JointOptions,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `optimise_on_mesh` is called with: arrays laid out over the mesh, of every process the same.

    Raises:
        ValueError: if seeds, heads or items are not multiples of their axis.
    """
    for name, number, axis in (
        ("seeds", len(seeds), "data"),
        ("num_heads", num_heads, "head"),
        ("num_items", embeddings.shape[1], "row"),
    ):
        if number % mesh.shape[axis]:
            raise ValueError(
                f"{name}: expected a multiple of the mesh's {axis} = {mesh.shape[axis]}, got {number}"
            )
    params = initial_params(
        seeds,
        num_heads=num_heads,
        d_model=embeddings.shape[-1],
        head_dim=head_dim,
        max_head_dim=max_head_dim,
        scale=options.init_scale,
    )

    def put(array: Any, spec: P) -> Array:
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, NamedSharding(mesh, spec), lambda index: host[index])

    weight = edge_weight(adjacency, options)
    arrays = (
        {name: put(leaf, _WEIGHTS[name]) for name, leaf in params.items()},
        put(embeddings.astype(np.float32), P("data")),
        put(adjacency, P("data", "row")),
        jax.tree.map(lambda scalar: put(scalar, P()), scalars_of(weight, options)),
    )
    settings = {"mesh": mesh, "num_edges": int(adjacency[0].sum()), **static_of(options)}
    return arrays, settings


def train_joint_on_mesh(
    embeddings: Float[np.ndarray, "b m d"],
    adjacency: Bool[np.ndarray, "b m m"],
    *,
    mesh: Mesh,
    num_heads: int,
    head_dim: int,
    seeds: Sequence[int],
    max_head_dim: int | None = None,
    options: JointOptions | None = None,
) -> list[Channel]:
    """Train all heads at once on the devices of a mesh; `theory.training.train_joint`'s channels up to rounding.

    With several processes each calls it with the same arguments and gets all channels.

    Args:
        embeddings: items of each problem ``(b, m, d)``, unit norm.
        adjacency: edges of each problem ``(b, m, m)``, [source, target].
        mesh: of `make_mesh`.
        num_heads: heads ``h``, a multiple of the head axis.
        head_dim: key dimension of a head, ``d_k``.
        seeds: one per problem, a multiple of the data axis.
        max_head_dim: width the program is compiled for; ``head_dim`` if None.
        options: settings of the trainer.

    Raises:
        ValueError: as `arguments` and `theory.training.types.check_batch`.
    """
    options = options or JointOptions()
    width = head_dim if max_head_dim is None else max_head_dim
    check_batch(embeddings, adjacency, num_heads, head_dim, width, seeds)
    arrays, settings = arguments(
        embeddings,
        adjacency,
        mesh=mesh,
        num_heads=num_heads,
        head_dim=head_dim,
        seeds=seeds,
        max_head_dim=width,
        options=options,
    )
    kept, loss, steps = jax.device_get(optimise_on_mesh(*arrays, **settings))
    return channels_of(kept, loss, steps, edge_weight(adjacency, options), head_dim, options)
