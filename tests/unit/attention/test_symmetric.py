from attention_helpers import build, hidden_states, is_symmetric, logits, rotation


def test_keys_are_the_queries():
    projected = build("symmetric")(hidden_states())
    assert projected.k_BGLK is projected.q_BHLK
    assert projected.v_BGLK is not projected.q_BHLK


def test_logits_are_symmetric_even_when_rotated():
    """Both sides of a product are turned alike: distance enters, direction does not."""
    variant, hidden = build("symmetric"), hidden_states()
    assert is_symmetric(logits(variant, hidden))
    assert is_symmetric(logits(variant, hidden, rotation(8)))
