from attention_helpers import WIDTH, build, hidden_states, is_symmetric, logits


def test_parameters_have_berts_names():
    names = {name for name, _ in build("standard").named_parameters()}
    assert names == {f"{role}.{kind}" for role in ("query", "key", "value") for kind in ("weight", "bias")}


def test_three_tensors_of_full_width():
    projected = build("standard")(hidden_states())
    assert len({id(t) for t in (projected.q_BHLK, projected.k_BGLK, projected.v_BGLK)}) == 3
    assert projected.q_BHLK.shape == (2, 3, 5, WIDTH // 3)


def test_logits_are_not_symmetric():
    assert not is_symmetric(logits(build("standard"), hidden_states()))
