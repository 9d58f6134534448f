"""The example of README.md runs as it stands there."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from tests.mha_jax.flax_layers import jit

README = Path(__file__).parents[2] / "README.md"


def kernel_blocks():
    """Python blocks of the section on the kernels."""
    section = re.search(
        r"^## Use the kernels in your model\n(.*?)^## ", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert section, "README.md has no such section"
    return re.findall(r"^```python\n(.*?)^```", section[1], re.DOTALL | re.MULTILINE)


def test_the_example_trains_and_flaxs_module_takes_the_kernel():
    train, own_modules = kernel_blocks()
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(train, str(README), "exec"), names)
    losses = np.array(names["losses"])
    assert abs(losses[0] - np.log(32)) < 1.5
    assert losses[-1] < 0.5 * losses[0]  # without attention it is above 0.7 of the first after as many steps

    exec(compile(own_modules, str(README), "exec"), names)
    x = jax.random.normal(jax.random.key(1), (2, 5, 64))
    found, expected = jit(lambda x: (names["ours"](x), names["theirs"](x)))(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert isinstance(names["theirs"], nnx.MultiHeadAttention)
