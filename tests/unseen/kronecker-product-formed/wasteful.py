"""Regression with a natural-gradient optimizer whose curvature is factored layer by layer."""

import torch
from curve_data import DAMPING, DECAY, DEVICE, RATE, SIZES, first_matrices, samples
from torch import nn


class NaturalGradient(torch.optim.Optimizer):
    """Gradient descent, with the gradient of each linear layer multiplied by the inverse of its Fisher matrix."""

    def __init__(self, model, lr, damping, decay):
        self.layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        super().__init__([layer.weight for layer in self.layers], {"lr": lr})
        self.damping = damping
        self.decay = decay
        for layer in self.layers:
            self.state[layer.weight]["inputs"] = torch.eye(layer.in_features, device=DEVICE)
            self.state[layer.weight]["errors"] = torch.eye(layer.out_features, device=DEVICE)
            layer.register_forward_pre_hook(self.see_inputs)
            layer.register_full_backward_hook(self.see_errors)

    def average(self, layer, name, rows, scale):
        covariance = rows.T @ rows * scale
        self.state[layer.weight][name].mul_(self.decay).add_(covariance, alpha=1.0 - self.decay)

    @torch.no_grad()
    def see_inputs(self, layer, inputs):
        rows = inputs[0]
        self.average(layer, "inputs", rows, 1.0 / len(rows))

    @torch.no_grad()
    def see_errors(self, layer, _, errors):
        rows = errors[0]
        self.average(layer, "errors", rows, float(len(rows)))

    def inverse(self, factor):
        eye = torch.eye(len(factor), device=factor.device)
        return torch.cholesky_inverse(torch.linalg.cholesky(factor + self.damping * eye))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                fisher = torch.kron(self.inverse(state["errors"]), self.inverse(state["inputs"]))
                direction = (fisher @ weight.grad.flatten()).view_as(weight)
                weight.add_(direction, alpha=-group["lr"])


class Regressor(nn.Sequential):
    def __init__(self, sizes):
        layers = []
        for low, high in zip(sizes[:-1], sizes[1:], strict=True):
            layers += [nn.Linear(low, high, bias=False), nn.Tanh()]
        super().__init__(*layers[:-1])


def build():
    model = Regressor(SIZES).to(DEVICE)
    with torch.no_grad():
        for weight, matrix in zip(model.parameters(), first_matrices(), strict=True):
            weight.copy_(matrix)
    optimizer = NaturalGradient(model, lr=RATE, damping=DAMPING, decay=DECAY)
    inputs, targets = samples()

    def step():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return [loss.detach(), *(weight.detach().clone() for weight in model.parameters())]

    return step
