"""The pretrained models against the reference, and what the forward pass promises."""

import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.pretrained import (
    WHEELS,
    Sizes,
    forward,
    installed,
    load,
    random_weights,
    sentence_embeddings,
    sizes,
)
from tests.experiments.pretrained_reference import GOLDEN, LAYERS, LOGITS, SENTENCES, TEXTS, reference

TOLERANCE = {"minilm-l6": 1e-5, "smollm2-135m": 1e-5}
"""Of attention maps, float32."""
LOGITS_TOLERANCE = 1e-3
HIDDEN_TOLERANCE = {"minilm-l6": 1e-5, "smollm2-135m": 1e-3}

run = jax.jit(forward, static_argnums=1, static_argnames="return_weights")


@pytest.fixture(params=list(WHEELS))
def name(request):
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed; run `make models`")
    return request.param


def batch(sentences):
    """Ids as one padded batch, padded with an id that is a word elsewhere."""
    tokens = np.full((len(sentences), max(map(len, sentences))), 1000)
    for row, ids in zip(tokens, sentences, strict=True):
        row[: len(ids)] = ids
    return jnp.asarray(tokens), jnp.array([len(ids) for ids in sentences])


@functools.cache
def ours(name):
    model = load(name)
    sentences = [model.tokenizer.around(model.tokenizer.encode(text)) for text in SENTENCES]
    return sentences, run(model.params, model.config, *batch(sentences), return_weights=True)


def error(a, b):
    assert a.shape == b.shape
    return float(np.abs(np.asarray(a) - b).max())


def compare(name, first, second):
    """Differences of the two sentences, in one padded batch here and alone there, from reference arrays."""
    (ids, other), out = ours(name)
    t, u = len(ids), len(other)
    assert u < t
    assert error(out.hidden[0, :t], first["hidden"]) < HIDDEN_TOLERANCE[name]
    assert error(out.hidden[1, :u], second["hidden"]) < HIDDEN_TOLERANCE[name]
    return t, u, out


def test_it_gives_what_the_reference_gave(name):
    with np.load(GOLDEN, allow_pickle=False) as file:
        golden = {key.removeprefix(f"{name}/"): file[key] for key in file if key.startswith(name)}
    t, _, out = compare(name, golden, {"hidden": golden["hidden_second"]})
    weights = out.weights[jnp.array(LAYERS[name]), 0]
    assert error(weights[..., :t, :t], golden["weights"]) < TOLERANCE[name]
    config = load(name).config
    assert ("logits" in golden) == config.causal
    assert sizes(name) == tuple(getattr(config, field) for field in Sizes._fields)
    if "logits" in golden:
        assert error(out.logits[0, :t, LOGITS], golden["logits"]) < LOGITS_TOLERANCE
    assert golden["weights"].max() > 0.5  # there is something to get wrong
    tokenizer = load(name).tokenizer
    for i, text in enumerate(TEXTS):
        assert tokenizer.around(tokenizer.encode(text)) == golden[f"ids_{i}"].tolist()


@pytest.mark.slow
@pytest.mark.skipif(
    not all(importlib.util.find_spec(package) for package in ("torch", "transformers", "accelerate")),
    reason="the reference is not installed; pip install '.[parity]'",
)
@pytest.mark.filterwarnings("default")
def test_it_gives_what_the_reference_gives(name):
    ids, (first, second) = reference(name)
    t, u, out = compare(name, first, second)
    assert ours(name)[0] == ids[: len(SENTENCES)]
    assert error(out.weights[:, 0, :, :t, :t], first["weights"]) < TOLERANCE[name]
    assert error(out.weights[:, 1, :, :u, :u], second["weights"]) < TOLERANCE[name]
    if "logits" in first:
        assert error(out.logits[0, :t], first["logits"]) < LOGITS_TOLERANCE


def test_maps_are_distributions_and_padding_has_none(name):
    sentences, out = ours(name)
    sums = np.asarray(out.weights.sum(-1))
    for row, ids in enumerate(sentences):
        assert np.abs(sums[:, row, :, : len(ids)] - 1).max() < 1e-5
        assert not out.weights[:, row, :, len(ids) :].any()
        assert not out.weights[:, row, :, :, len(ids) :].any()
    above = np.triu(np.asarray(out.weights), 1)
    assert above.any() != load(name).config.causal


def test_words_of_the_models(name):
    tokenizer = load(name).tokenizer
    words, spaces = ["I", "do", "n't", "know", "antidisestablishmentarianism", "."], [True] * 5 + [False]
    spaces[2] = False
    ids, owners = tokenizer.encode_words(words, spaces)
    inside = [(id, owner) for id, owner in zip(ids, owners, strict=True) if owner >= 0]
    assert sorted({owner for _, owner in inside}) == list(range(6))
    assert [owner for _, owner in inside] == sorted(owner for _, owner in inside)
    assert sum(owner == 4 for _, owner in inside) > 3
    assert ids == tokenizer.around([id for id, _ in inside])
    assert inside[-1][0] in tokenizer.punctuation
    marks = {"minilm-l6": ({"[CLS]", "[SEP]"}, 2), "smollm2-135m": ({"<|im_end|>"}, 0)}[name]
    assert marks[0] <= set(tokenizer.pieces(sorted(tokenizer.special)))
    assert len(ids) - len(inside) == marks[1]
    assert not {id for id, _ in inside} & tokenizer.special


def test_head_masks_remove_heads():
    """Zeroing a head's output matrix and masking it give the same; a mask by token acts on that token alone."""
    if not installed("minilm-l6"):
        pytest.skip("minilm-l6 is not installed; run `make models`")
    model = load("minilm-l6")
    tokens, lengths = batch(ours("minilm-l6")[0])
    layer, head = 3, 7
    large = jnp.ones((6, *tokens.shape, 12)).at[layer, :, :, head].set(0)
    attention = model.params["layers"]["attention"]
    kernel = attention["out"]["kernel"].at[layer, head].set(0)
    cut = {**attention, "out": {**attention["out"], "kernel": kernel}}
    params = {**model.params, "layers": {**model.params["layers"], "attention": cut}}
    whole = ours("minilm-l6")[1].hidden
    removed = run(params, model.config, tokens, lengths, head_mask=jnp.ones(large.shape))
    assert removed.weights is None
    assert error(removed.hidden, np.asarray(whole)) > 1e-2
    masked = run(model.params, model.config, tokens, lengths, head_mask=large[:, 0, 0]).hidden
    assert error(masked, np.asarray(removed.hidden)) < 1e-5
    masked = run(model.params, model.config, tokens, lengths, head_mask=large).hidden
    assert error(masked, np.asarray(removed.hidden)) < 1e-5
    last = jnp.ones(large.shape).at[-1, 0, 2, head].set(0)
    masked = np.asarray(run(model.params, model.config, tokens, lengths, head_mask=last).hidden)
    changed = np.abs(masked - np.asarray(whole)).max(-1) > 1e-4
    assert np.argwhere(changed).tolist() == [[0, 2]]


def test_sentence_embeddings_are_means_of_their_own_tokens():
    hidden = jnp.array([[[3.0, 0.0], [3.0, 8.0], [99.0, 99.0]], [[0.0, 2.0], [7.0, 7.0], [7.0, 7.0]]])
    embeddings = sentence_embeddings(hidden, jnp.array([2, 1]))
    assert np.abs(np.asarray(embeddings) - [[0.6, 0.8], [0.0, 1.0]]).max() < 1e-6


def test_random_weights_keep_what_is_promised():
    rng = np.random.default_rng(0)

    def trained(layers, *shape):
        """Two layers of different mean and scale."""
        return jnp.asarray(rng.standard_normal((layers, *shape)) * [[[1.0]], [[3.0]]] + [[[0.5]], [[-2.0]]])

    kernel = trained(2, 50, 40)
    params = {
        "embed": {"tokens": jnp.ones((3, 2))},
        "layers": {
            "attention": {"query": {"kernel": kernel}, "key": {"kernel": trained(2, 50, 40)}},
            "mlp": {"up": {"kernel": trained(2, 50, 40)}},
            "attention_norm": {"scale": jnp.ones((2, 4))},
        },
        "final_norm": {"scale": jnp.ones(4)},
    }
    control = random_weights(params, 0)
    assert jax.tree.structure(control) == jax.tree.structure(params)
    for same in ("embed", "final_norm"):
        assert control[same] is params[same]
    assert control["layers"]["attention_norm"] is params["layers"]["attention_norm"]
    drawn = control["layers"]["attention"]["query"]["kernel"]
    for layer, (mean, sd) in enumerate(((0.5, 1.0), (-2.0, 3.0))):
        # Mean and standard deviation of 2 x 2,000 draws, within five of their own standard deviations.
        assert abs(float(drawn[layer].mean()) - mean) < 5 * sd * np.sqrt(2 / 2000)
        assert abs(float(drawn[layer].std()) / sd - 1) < 5 / np.sqrt(2000)
        for other in (
            kernel[layer],
            control["layers"]["attention"]["key"]["kernel"][layer],
            drawn[1 - layer],
        ):
            assert abs(np.corrcoef(np.ravel(drawn[layer]), np.ravel(other))[0, 1]) < 5 / np.sqrt(2000)
    again, other = (random_weights(params, seed)["layers"]["attention"]["query"]["kernel"] for seed in (0, 1))
    assert (drawn == again).all()
    assert not (drawn == other).any()


def test_bad_shapes_are_named():
    if not installed("minilm-l6"):
        pytest.skip("minilm-l6 is not installed; run `make models`")
    model = load("minilm-l6")
    tokens, lengths = jnp.zeros((1, 4), int), jnp.array([4])
    with pytest.raises(ValueError, match=r"head_mask: expected shape \(6, 12\) or \(6, 1, 4, 12\)"):
        forward(model.params, model.config, tokens, lengths, head_mask=jnp.ones((12, 6)))
    with pytest.raises(ValueError, match="tokens: expected at most 512 positions, got 513"):
        forward(model.params, model.config, jnp.zeros((1, 513), int), jnp.array([513]))
    with pytest.raises(ValueError, match=r"tokens: expected shape \(b, t\)"):
        forward(model.params, model.config, tokens[0], lengths)
