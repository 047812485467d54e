import pytest
from torch import nn

from sharedqkv import plugins
from sharedqkv.attention import Geometry, Variant, build_variant, get_variant, register_variant, registry, variant_names


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(registry, "_VARIANTS", dict(registry._VARIANTS))


def test_the_eleven_are_there():
    assert set(variant_names()) >= {
        "standard", "symmetric", "pairwise", "shared", "tied", "key_value", "low_rank", "narrow", "grouped", "rolled",
        "overlapping",
    }  # fmt: skip


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match=r"unknown attention_variant 'shard'. Did you mean 'shared'") as caught:
        get_variant("shard")
    assert all(name in str(caught.value) for name in variant_names())


def test_a_taken_name_is_refused():
    with pytest.raises(ValueError, match=r"'shared' is already registered by sharedqkv.attention.shared.Shared"):

        @register_variant("shared")
        class Other(Variant):
            pass


def test_registering_again_after_a_reload_is_fine():
    again = type("Shared", (Variant,), {"__module__": "sharedqkv.attention.shared", "__qualname__": "Shared"})
    assert register_variant("shared")(again) is get_variant("shared")


def test_names_must_be_identifiers():
    with pytest.raises(ValueError, match="must be a Python identifier"):
        register_variant("my-variant")


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="hidden_size 10 is not divisible by num_attention_heads 3"):
        build_variant("standard", Geometry(10, 3))


def test_entry_points_of_other_packages_are_found(monkeypatch):
    class EntryPoint:
        def load(self):
            @register_variant("from_elsewhere")
            class FromElsewhere(Variant):
                def __init__(self, geometry, options):
                    super().__init__(geometry, options)
                    self.query = nn.Linear(geometry.width, geometry.width)

    monkeypatch.setattr(plugins, "_left_out", {})
    monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint()] if group == "sharedqkv.variants" else [])
    assert get_variant("from_elsewhere").__name__ == "FromElsewhere"
    assert "from_elsewhere" in variant_names()
