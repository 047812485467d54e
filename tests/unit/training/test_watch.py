import pytest
import torch
from safetensors.torch import load_file

from sharedqkv.training.watch import LossWatch, NonFiniteLossError


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_stops_one_step_late_and_keeps_the_batch(tmp_path, bad):
    watch = LossWatch(tmp_path)
    watch.saw(torch.tensor(1.0), {"input_ids": torch.zeros(1, 2)})
    watch.step_ended(1)
    watch.saw(torch.tensor(2.0), {"input_ids": torch.ones(1, 2)})
    watch.saw(torch.tensor(bad), {"input_ids": torch.full((1, 2), 7)})
    watch.step_ended(2)
    watch.saw(torch.tensor(1.0), {"input_ids": torch.zeros(1, 2)})
    with pytest.raises(NonFiniteLossError, match=rf"the loss is {bad} at step 2\. .*non_finite_batch_2.safetensors"):
        watch.step_ended(3)
    assert (load_file(tmp_path / "non_finite_batch_2.safetensors")["input_ids"] == 7).all()


def test_nothing_unchecked_is_kept(tmp_path):
    watch = LossWatch(tmp_path)
    watch.saw(torch.tensor(float("nan")), {})
    watch.step_ended(1)
    with pytest.raises(NonFiniteLossError):
        watch.check_now(1)
