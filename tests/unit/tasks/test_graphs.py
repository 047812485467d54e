"""Replayed passes train as plain ones do. Without a GPU the graphs are lists of operations that are run again."""

import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from finetuning_helpers import make_model, make_questions, make_rows
from helpers import tiny_config, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import TrainingArguments

from sharedqkv.data.tokenizer import load_tokenizer
from sharedqkv.tasks import graphs, training
from sharedqkv.tasks.glue import GLUE
from sharedqkv.tasks.graphs import GraphedPass
from sharedqkv.tasks.recipe import FinetuneRecipe
from sharedqkv.tasks.registry import get_task
from sharedqkv.tasks.together import Stack
from sharedqkv.tasks.training import Collator, FinetuneTrainer, build_model, outputs_of, train

HAS_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="shows what real CUDA graphs do: needs a GPU")


class RecordedGraph(TorchDispatchMode):
    """Keeps every operation with its tensors; a replay writes the results into the same tensors."""

    capturing = False

    def __init__(self):
        super().__init__()
        self.calls = []

    def __enter__(self):
        RecordedGraph.capturing, self.rng_state = True, torch.get_rng_state()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        RecordedGraph.capturing = False
        torch.set_rng_state(self.rng_state)  # a real capture runs nothing

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten._local_scalar_dense.default, "waits for the GPU while capturing"
        results = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, results))
        return results

    @torch.no_grad()
    def replay(self):
        for func, args, kwargs, results in self.calls:
            for old, new in zip(tree_leaves(results), tree_leaves(func(*args, **kwargs)), strict=True):
                is_tensor = isinstance(old, torch.Tensor)
                if is_tensor and old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    old.copy_(new)


@pytest.fixture
def device(monkeypatch):
    if HAS_GPU:
        return "cuda"
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(graphs, "_side_stream", lambda: stream)
    for name, stand_in in {
        "graph_pool_handle": lambda: None,
        "CUDAGraph": RecordedGraph,
        "graph": lambda graph, **options: graph,
        "current_stream": lambda: stream,
        "stream": nullcontext,
        "is_current_stream_capturing": lambda: RecordedGraph.capturing,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return "cpu"


def batch_of(rows, length, device, head="SequenceClassification", padding=1):
    made = {
        "input_ids": torch.randint(3, 40, (rows, length)),
        "token_type_ids": torch.randint(2, (rows, length)),
        "attention_mask": (torch.arange(length) < length - padding).long().expand(rows, length).contiguous(),
    }
    names = ("labels",) if head == "SequenceClassification" else ("start_positions", "end_positions")
    made |= {name: torch.randint(3, (rows,)) for name in names}
    return {name: tensor.to(device) for name, tensor in made.items()}


def pass_of(model, bf16=False):
    def training_pass(batch):
        with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        return loss.detach()

    return training_pass


def gradients_after(run, model):
    model.zero_grad()
    loss = run()
    return [loss, *(None if one.grad is None else one.grad.clone() for one in model.parameters())]


@pytest.mark.parametrize(
    ("head", "positions"), [("SequenceClassification", "absolute"), ("QuestionAnswering", "rotary")]
)
def test_loss_and_gradients_are_those_of_the_plain_pass(device, head, positions, variant):
    model = tiny_model(head, tiny_config(variant, position_embedding_type=positions)).to(device).train()
    next(iter(model.parameters())).requires_grad_(False)
    graphed, plain = GraphedPass(model), pass_of(model)
    shapes = [(4, 8, 1), (3, 16, 0), (4, 8, 0), (4, 8, 5), (3, 16, 9)]
    for rows, length, padding in shapes:
        batch = batch_of(rows, length, device, head, padding)
        expected = gradients_after(lambda batch=batch: plain(batch), model)
        found = gradients_after(lambda batch=batch: graphed(plain, batch), model)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(graphed.captured) == 2


def test_models_trained_together_are_replayed_as_one(device):
    config = tiny_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    stack = Stack([tiny_model("SequenceClassification", config).to(device) for _ in range(3)])

    def plain(batch):
        losses = stack(batch)
        stack.backward(losses, 0.1)
        return losses.detach()

    graphed = GraphedPass(stack)
    for rows, length, padding in [(4, 8, 1), (2, 16, 0), (4, 8, 5)]:
        batches = [batch_of(rows, length, device, padding=padding) for _ in range(3)]
        batch = {name: torch.stack([one[name] for one in batches]) for name in batches[0]}
        batch["attention_mask"] = batch["attention_mask"].bool()
        expected = gradients_after(lambda batch=batch: plain(batch), stack)
        found = gradients_after(lambda batch=batch: graphed(plain, batch), stack)
        assert expected[0].shape == (3,)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(graphed.captured) == 2


@pytest.mark.parametrize("bf16", [False, True])
def test_a_replay_reads_the_weights_of_now(device, bf16):
    model = tiny_model("SequenceClassification", tiny_config()).to(device).train()
    graphed, plain, batch = GraphedPass(model), pass_of(model, bf16), batch_of(4, 8, device)
    before = graphed(plain, batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    after = graphed(plain, batch)
    torch.testing.assert_close(after, plain(batch), rtol=0.03 if bf16 else 1e-5, atol=0.0)
    assert (after - before).abs() > 0.1 * before


def test_the_loss_is_not_overwritten_by_the_next_pass(device):
    model = tiny_model("SequenceClassification", tiny_config()).to(device).train()
    graphed = GraphedPass(model)
    first = graphed(pass_of(model), batch_of(4, 8, device))
    kept = first.item()
    graphed(pass_of(model), batch_of(4, 8, device))
    assert first.item() == kept


def test_dropout_hangs_on_the_seed_and_not_on_when_a_shape_was_captured(device):
    model = tiny_model("SequenceClassification", tiny_config(hidden_dropout_prob=0.1)).to(device).train()
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    graphed, batch = GraphedPass(model), batch_of(4, 8, device)
    torch.manual_seed(7)
    losses = [graphed(pass_of(model), batch).item() for _ in range(3)]
    assert len(set(losses)) == 3
    torch.manual_seed(7)
    assert [graphed(pass_of(model), batch).item() for _ in range(3)] == losses
    torch.testing.assert_close(list(model.parameters()), weights, rtol=0, atol=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), "shared", hidden_size=128, num_hidden_layers=2)


RECIPE = FinetuneRecipe(
    max_length=24, epochs=2, batch_size=4, learning_rate=1e-3, eps=1e-3, dropout=0.0, stride=4, max_question_length=8
)


def features_of(task, folder, count=10):
    """The last of three batches has two rows; a question may have several windows."""
    rows = make_questions(count) if task.name == "squad" else make_rows(task.name, count)
    return task.features(task.examples(rows, ""), load_tokenizer(str(folder)), RECIPE, True)


@pytest.mark.parametrize("name", ["cola", "stsb", "squad"])
def test_the_trainer_takes_the_same_steps(device, folder, tmp_path, name):
    task = get_task(name)

    def trained(replayed):
        model = build_model(task, folder, RECIPE, seed=0)
        args = TrainingArguments(
            tmp_path, max_steps=7, per_device_train_batch_size=4, learning_rate=1e-3, adam_epsilon=1e-3, report_to=[],
            remove_unused_columns=False, save_strategy="no", disable_tqdm=True, use_cpu=not HAS_GPU,
        )  # fmt: skip
        rows = features_of(task, folder).inputs
        trainer = FinetuneTrainer(model, args, data_collator=Collator(0, RECIPE.max_length), train_dataset=rows)
        if replayed:
            trainer.graphed_pass = GraphedPass(model)
        loss = trainer.train().training_loss
        assert not replayed or len(trainer.graphed_pass.captured) >= 2
        return [torch.tensor(loss), *(parameter.detach().cpu() for parameter in model.parameters())]

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-4, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("name", ["cola", "squad"])
def test_recipes_with_graphs_train_as_without(folder, name):
    task = get_task(name)

    def trained(**settings):
        recipe = FinetuneRecipe(**{**RECIPE.to_dict(), **settings})
        model = build_model(task, folder, recipe, seed=0)
        train(model, features_of(task, folder), recipe, 0, 0, "test")
        return [parameter.detach().cpu() for parameter in model.parameters()]

    torch.testing.assert_close(trained(cuda_graphs=True), trained(), rtol=1e-4, atol=1e-5)


@needs_gpu
def test_graphs_do_not_outlive_the_training(folder, monkeypatch):
    made = []

    def noted(model):
        graphed = GraphedPass(model)
        made.append(weakref.ref(graphed))
        return graphed

    monkeypatch.setattr(training, "GraphedPass", noted)
    recipe = FinetuneRecipe(**{**RECIPE.to_dict(), "cuda_graphs": True})
    train(build_model(GLUE["cola"], folder, recipe, 0), features_of(GLUE["cola"], folder), recipe, 0, 0, "test")
    assert [graphed() for graphed in made] == [None]


@needs_gpu
@pytest.mark.parametrize(
    "settings", [{}, {"tf32": True}, {"bf16": True}, {"bf16": True, "attn_implementation": "fused"}]
)
def test_the_same_seed_gives_the_same_predictions(folder, settings):
    recipe = FinetuneRecipe(**{**RECIPE.to_dict(), "dropout": 0.1, "cuda_graphs": True, **settings})
    features = features_of(GLUE["cola"], folder, count=30)

    def answers(seed):
        model = build_model(GLUE["cola"], folder, recipe, seed=0)
        train(model, features, recipe, seed, 0, "test")
        return [output.tolist() for output in outputs_of(model, features, recipe, 0)]

    assert answers(1) == answers(1) != answers(2)
