"""What was predicted of `experiments.bench_decode` before its first run, and what came of it."""

import math

from experiments.timing import Record

PREDICTIONS = {
    "bytes": "The arrays of a cache take exactly the bytes a token that the papers' formulas give.",
    "temporary": "From 2,048 tokens on a step's temporary memory is at most a quarter of an MHA or GQA cache.",
    "gqa": "At the longest context GQA with a quarter of the heads is 2 to 4 times as fast as MHA, at either batch.",
    "mqa": "At the longest context MQA is 4 to 16 times as fast as MHA, at either batch.",
    "mla": "At the longest context absorbed MLA is 2 to 6 times as fast as MHA: its cache is 7.1 times smaller, but "
    "every head reads all of it, so that arithmetic costs as much as memory.",
    "absorbed": "From 4,096 tokens on absorbed MLA is at least 10 times as fast as naive.",
}


def outcomes(points: list[Record]) -> dict[str, Record]:
    """What came of every prediction: its text, whether it held (None: not measured), and the numbers."""
    longest = max(p["context"] for p in points)

    def speeds(name: str) -> dict[str, float]:
        found = [p for p in points if (p["contender"], p["context"]) == (name, longest)]
        return {f"batch {p['batch']}": p["speed_over_mha"]["median"] for p in found}

    shares = {
        f"{p['contender']}, {p['context']}, batch {p['batch']}": p["temporary_bytes"] / p["cache_bytes"]
        for p in points
        if p["contender"] in ("mha", "gqa") and p["context"] >= 2048 and p["temporary_bytes"] is not None
    }
    absorbed = {
        f"{p['context']}, batch {p['batch']}": p["speed_over_naive"]["median"]
        for p in points
        if p["context"] >= 4096 and "speed_over_naive" in p
    }
    differences = {p["contender"]: p["measured_bytes_per_token"] - p["bytes_per_token"] for p in points}
    found = {
        "bytes": (differences, 0, 0),
        "temporary": (shares, 0, 0.25),
        "gqa": (speeds("gqa"), 2, 4),
        "mqa": (speeds("mqa"), 4, 16),
        "mla": (speeds("mla_absorbed"), 2, 6),
        "absorbed": (absorbed, 10, math.inf),
    }
    return {
        name: {
            "prediction": PREDICTIONS[name],
            "held": all(low <= x <= high for x in numbers.values()) if numbers else None,
            "numbers": numbers,
        }
        for name, (numbers, low, high) in found.items()
    }
