#!/usr/bin/env python3
"""The reference values of tests/golden/optim.lua, with PyTorch: optimisers, schedules, and norms of gradients.

optimisers: the parameters after each step with the given gradients, False for none. schedules: the rates of both groups
before each step, and the momentum where a schedule changes it. clips: the norm, and the gradients afterwards.
"""

import warnings

import golden
import torch
from torch import nn

warnings.filterwarnings("ignore")

STEPS = 4


def optimiser(draw, name, config, shapes=((3, 2), (5,)), missing=()):
    parameters = [nn.Parameter(torch.randn(s, generator=draw)) for s in shapes]
    case = {"class": name, "config": config, "parameters": [p.detach().clone() for p in parameters], "gradients": [],
            "expect": []}
    made = getattr(torch.optim, name)(parameters, **config)
    for step in range(STEPS):
        gradients = []
        for i, p in enumerate(parameters):
            p.grad = None if (step, i) in missing else torch.randn(p.shape, generator=draw)
            gradients.append(False if p.grad is None else p.grad.clone())
        made.step()
        case["gradients"].append(gradients)
        case["expect"].append([p.detach().clone() for p in parameters])
    return case


def optimisers(draw):
    sgd = [{"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.05}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "maximize": True},
           {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1, "maximize": True},
           {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}]
    adam = [{}, {"lr": 0.1, "betas": [0.4, 0.6]}, {"lr": 0.1, "weight_decay": 0.2},
            {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1}, {"lr": 0.1, "maximize": True, "eps": 1e-3},
            {"lr": 0.1, "betas": [0.0, 0.0]}]
    rmsprop = [{}, {"lr": 0.1, "alpha": 0.5}, {"lr": 0.1, "alpha": 0.3, "centered": True}, {"lr": 0.1, "momentum": 0.9},
               {"lr": 0.1, "momentum": 0.5, "centered": True, "weight_decay": 0.1, "maximize": True}]
    cases = [optimiser(draw, "SGD", c) for c in sgd]
    cases += [optimiser(draw, name, c) for name in ("Adam", "AdamW") for c in adam]
    cases.append(optimiser(draw, "Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}))
    cases += [optimiser(draw, "RMSprop", c) for c in rmsprop]
    missing = {(0, 0), (2, 1)}
    cases += [optimiser(draw, name, {"lr": 0.1, **c}, missing=missing)
              for name, c in (("SGD", {"momentum": 0.9, "dampening": 0.5}), ("AdamW", {}), ("RMSprop", {}))]
    return cases


SCHEDULES = [
    ("StepLR", {"step_size": 3}), ("StepLR", {"step_size": 1, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 8], "gamma": 0.5}),
    ("ConstantLR", {}), ("ConstantLR", {"factor": 0.5, "total_iters": 3}), ("ConstantLR", {"factor": 0.5, "total_iters": 0}),
    ("LinearLR", {}), ("LinearLR", {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.7}), ("PolynomialLR", {}), ("PolynomialLR", {"total_iters": 8, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5}), ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.02}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 16}), ("OneCycleLR", {"max_lr": [1.0, 2.0], "epochs": 4, "steps_per_epoch": 5}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 16, "three_phase": True, "pct_start": 0.4}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 16, "anneal_strategy": "linear", "cycle_momentum": False,
                    "div_factor": 10.0, "final_div_factor": 100.0}),
]
SEQUENCES = [
    ([("LinearLR", {"start_factor": 0.1, "total_iters": 4}), ("CosineAnnealingLR", {"T_max": 8})], [4]),
    ([("ConstantLR", {"factor": 0.1, "total_iters": 20}), ("ExponentialLR", {"gamma": 0.5}), ("StepLR", {"step_size": 2})], [3, 6]),
    ([("CosineAnnealingWarmRestarts", {"T_0": 3}), ("PolynomialLR", {"total_iters": 6})], [5]),
    ([("MultiStepLR", {"milestones": [2]}), ("LinearLR", {})], [4]),
]
MEASURES = [1.0, 0.5, 0.5, 0.5, 0.6, 0.4999, 0.5, 0.5, 0.5, 0.3, 0.31, 0.32, float("nan"), 0.3, 0.3]
PLATEAUS = [{"patience": 1}, {"patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": [0.03, 0.0]},
            {"mode": "max", "patience": 2, "threshold": 0.01, "threshold_mode": "abs"},
            {"patience": 1, "threshold_mode": "abs", "threshold": 0.2, "eps": 0.02}]


def two_groups(name="SGD"):
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": 0.5}, {"params": [nn.Parameter(torch.zeros(1))]}]
    return getattr(torch.optim, name)(groups, lr=0.1)


def follow(made, step, count=14):
    rates, momenta = [], []
    for i in range(count):
        rates.append([float(g["lr"]) for g in made.param_groups])
        momenta.append([float(g["momentum"] if "momentum" in g else g["betas"][0]) for g in made.param_groups])
        step(i)
    return rates, momenta


def schedules():
    kind, cases = torch.optim.lr_scheduler, []
    for name, config in SCHEDULES:
        for optim in ("SGD", "Adam") if name == "OneCycleLR" else ("SGD",):
            made = two_groups(optim)
            schedule = getattr(kind, name)(made, **config)
            rates, momenta = follow(made, lambda i: schedule.step())
            cases.append({"class": name, "config": config, "optim": optim, "expect": rates, "momenta": momenta})
    for parts, milestones in SEQUENCES:
        made = two_groups()
        schedule = kind.SequentialLR(made, [getattr(kind, n)(made, **c) for n, c in parts], milestones)
        rates, momenta = follow(made, lambda i: schedule.step())
        cases.append({"class": "SequentialLR", "parts": [{"class": n, "config": c} for n, c in parts],
                      "config": {"milestones": milestones}, "optim": "SGD", "expect": rates, "momenta": momenta})
    for config in PLATEAUS:
        made = two_groups()
        schedule = kind.ReduceLROnPlateau(made, **config)
        rates, momenta = follow(made, lambda i: schedule.step(MEASURES[i]))
        cases.append({"class": "ReduceLROnPlateau", "config": config, "measures": MEASURES, "optim": "SGD", "expect": rates,
                      "momenta": momenta})
    made = two_groups()
    schedule = kind.CosineAnnealingWarmRestarts(made, T_0=2, T_mult=2)
    epochs = [0.0, 0.5, 1.5, 2.0, 3.25, 5.75, 6.0, 13.5, 14.25, 1.0, 0.0, 7.0, 8.0, 9.0]
    rates, momenta = follow(made, lambda i: schedule.step(epochs[i]))
    cases.append({"class": "CosineAnnealingWarmRestarts", "config": {"T_0": 2, "T_mult": 2}, "measures": epochs,
                  "optim": "SGD", "expect": rates, "momenta": momenta})
    return cases


def clips(draw):
    cases = []
    for max_norm, norm_type in ((0.5, 2.0), (100.0, 2.0), (0.5, 1.0), (0.5, float("inf")), (0.3, 3.0), (0.0, 2.0), (0.7, 0.5)):
        parameters = [nn.Parameter(torch.zeros(s)) for s in ((3, 4), (2,), (2, 1, 2))]
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=draw)
        gradients = [p.grad.clone() for p in parameters]
        norm = nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)
        cases.append({"max_norm": max_norm, "norm_type": norm_type, "gradients": gradients, "norm": float(norm),
                      "expect": [p.grad for p in parameters]})
    return cases


def tagged(kind, cases):
    return [{"kind": kind, **case} for case in cases]


if __name__ == "__main__":
    draw = torch.Generator().manual_seed(25)
    all_cases = tagged("optimiser", optimisers(draw)) + tagged("schedule", schedules()) + tagged("clip", clips(draw))
    title = f"optim: reference values made by scripts/dev/make_optim_values.py with PyTorch {torch.__version__.split('+')[0]}"
    golden.write(golden.folder() / "optim.lua", title, all_cases, functions=True)
