"""StableAdamW (Wortsman et al. 2023): AdamW whose step shrinks where the gradient outruns its running square.

Spikes of the loss come from a second moment that lags behind; dividing the rate of each tensor by the root mean square
of g / √v, when that is over 1, takes them out without clipping the whole gradient.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class StableAdamW(torch.optim.Optimizer):
    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._step_group(group, parameters)
        return loss

    def _step_group(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": 0,
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
            self.state[parameter]["step"] += 1
        step = self.state[parameters[0]]["step"]
        # With debiased betas the averages need no correction afterwards.
        beta1, beta2 = (beta * (1 - beta ** (step - 1)) / (1 - beta**step) for beta in group["betas"])
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [self.state[parameter]["exp_avg"] for parameter in parameters]
        squares = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)

        roots = torch._foreach_sqrt(squares)
        surprises = torch._foreach_norm(torch._foreach_div(gradients, torch._foreach_clamp_min(roots, group["eps"])))
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(means, roots)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        for parameter, surprise, update in zip(parameters, surprises, updates, strict=True):
            rate = group["lr"] / (surprise / parameter.numel() ** 0.5).clamp(min=1)
            update.mul_(rate)
        torch._foreach_sub_(parameters, updates)
