"""Loss and speed of a run as pictures."""

from typing import Any

from sharedqkv.training.run_folder import RunFolder


def draw(run: RunFolder) -> None:
    """`plots/loss.png` and `plots/speed.png` (and .svg), when matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    records = run.metrics()
    run.plots.mkdir(exist_ok=True)
    train = [record for record in records if "loss" in record]
    held_out = [record for record in records if "eval_loss" in record]
    for name, label, lines in (
        ("loss", "MLM loss, nats a masked token", [("training", train, "loss"), ("held-out", held_out, "eval_loss")]),
        ("speed", "tokens a second", [("training", train, "tokens_per_s")]),
    ):
        figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
        for title, points, key in lines:
            if points:
                marker: dict[str, Any] = {"marker": "o", "linestyle": "--"} if title == "held-out" else {}
                axes.plot([p["tokens"] / 1e6 for p in points], [p[key] for p in points], label=title, **marker)
        axes.set_xlabel("million tokens")
        axes.set_ylabel(label)
        if name == "speed":
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if any(points for _, points, _ in lines):
            axes.legend()
        for suffix in ("png", "svg"):
            figure.savefig(run.plots / f"{name}.{suffix}", dpi=150)
        pyplot.close(figure)
