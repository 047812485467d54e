import torch
from attention_helpers import build, hidden_states, is_symmetric, logits


def test_heads_take_queries_and_values_from_their_neighbours():
    variant, hidden = build("rolled"), hidden_states()
    projected = variant(hidden)
    s = variant.split_heads(variant.shared(hidden))
    for head in range(3):
        assert torch.equal(projected.q_BHLK[:, head], s[:, (head + 1) % 3])
        assert torch.equal(projected.k_BGLK[:, head], s[:, head])
        assert torch.equal(projected.v_BGLK[:, head], s[:, (head + 2) % 3])


def test_logits_are_not_symmetric():
    assert not is_symmetric(logits(build("rolled"), hidden_states()))


def test_costs_what_shared_costs():
    rolled, shared = build("rolled"), build("shared")
    assert rolled.parameter_formula() == shared.parameter_formula()
    assert {n: p.shape for n, p in rolled.named_parameters()} == {n: p.shape for n, p in shared.named_parameters()}
