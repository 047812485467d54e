import pytest

from sharedqkv.accounting.bench.settings import Settings


@pytest.mark.parametrize(
    "values",
    [{"rows": 0}, {"length": 0}, {"rounds": 0}, {"steps": 0}, {"warmup": -1}, {"layers": 0}, {"dropout": 1.0}],
    ids=str,
)
def test_impossible_values_are_named(values):
    ((name, value),) = values.items()
    with pytest.raises(ValueError, match=f"--{name} {value:g}: expected"):
        Settings(**values)


def test_tokens():
    assert Settings(rows=3, length=5).tokens == 15
