import torch
from attention_helpers import build, hidden_states, is_symmetric, logits


def test_all_three_are_one_tensor():
    projected = build("tied")(hidden_states())
    assert projected.q_BHLK is projected.k_BGLK is projected.v_BGLK
    assert projected.query_scale_HK is projected.key_scale_HK is projected.output_scale_HK is None


def test_is_shared_with_its_diagonals_at_one():
    tied, shared, hidden = build("tied", bias=True), build("shared", bias=True), hidden_states()
    shared.shared.load_state_dict(tied.shared.state_dict())
    assert torch.equal(logits(tied, hidden), logits(shared, hidden))
    assert is_symmetric(logits(tied, hidden))
