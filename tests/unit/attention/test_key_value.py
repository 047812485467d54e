from attention_helpers import build, hidden_states, is_symmetric, logits


def test_values_are_the_keys():
    projected = build("key_value")(hidden_states())
    assert projected.k_BGLK is projected.v_BGLK
    assert projected.q_BHLK is not projected.k_BGLK


def test_logits_are_not_symmetric():
    assert not is_symmetric(logits(build("key_value"), hidden_states()))
