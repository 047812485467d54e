"""The order of the training data as a pure function of a seed.

A run is one sequence of samples 0, 1, 2, …; sample n belongs to epoch n // rows and to a row that a permutation of
that epoch names. Nothing is drawn and nothing is kept, so that a resumed run, other workers and other processes see
the same data. Randomness is a hash of counters, the same on every platform.
"""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit integers that looks random (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def hashed(seed: int, stream: int, *counters: np.ndarray) -> np.ndarray:
    """64 random-looking bits for every combination of broadcast counters; streams are independent."""
    with np.errstate(over="ignore"):
        state = mix(np.asarray([seed], dtype=np.uint64) * _GOLDEN + np.uint64(stream))
        for counter in counters:
            state = mix((state ^ counter.astype(np.uint64)) + _GOLDEN)
    return state


def uniform(seed: int, stream: int, *counters: np.ndarray) -> np.ndarray:
    """Floats in [0, 1), from `hashed`."""
    return (hashed(seed, stream, *counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def rows_of_samples(samples: np.ndarray, num_rows: int, seed: int) -> np.ndarray:
    """The row each sample reads: every row once an epoch, in an order of its own in each epoch."""
    epochs, places = np.divmod(samples.astype(np.int64), num_rows)
    return _permuted(places, epochs, num_rows, seed)


_PERMUTATION_STREAM = 1
_ROUNDS = 4


def _permuted(places: np.ndarray, epochs: np.ndarray, size: int, seed: int) -> np.ndarray:
    """A Feistel network over the next even power of two; what falls outside is sent through again."""
    half = np.uint64((max(2, int(size - 1).bit_length()) + 1) // 2)
    low = (np.uint64(1) << half) - np.uint64(1)
    values = places.astype(np.uint64)
    outside = np.ones(values.shape, dtype=bool)
    while outside.any():
        left, right = values[outside] >> half, values[outside] & low
        for number in range(_ROUNDS):
            key = np.full_like(right, number)
            left, right = right, left ^ (hashed(seed, _PERMUTATION_STREAM, epochs[outside], key, right) & low)
        values[outside] = (left << half) | right
        outside = values >= np.uint64(size)
    return values.astype(np.int64)
