"""Makes the gradients of activations and losses where their formulas change or overflow, with PyTorch:
tests/golden/loss_gradients.lua.

    python scripts/dev/make_loss_gradient_values.py [FOLDER]     (pip install torch==2.13.0 numpy)

A case is {name =, args =, options =, weight =, value =, grads =}: y = heed.nn.functional[name](args…, options) has that
value, and (y · weight):sum():backward() gives these gradients to the args. All is computed in float64.
"""

import torch
import torch.nn.functional as F

import golden

SCORES = [0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 20.0, -20.0, 30.0, -30.0, 100.0, -100.0, 1e4, -1e4, 1e-30, -1e-30]
PROBABILITIES = [0.0, 1.0, 0.5, 0.25, 1e-30, 2**-24, 1 - 2**-24]
cases = []


def case(name, args, **options):
    leaves = [each.double().requires_grad_() for each in args]
    y = getattr(F, name)(*leaves, **options)
    weight = (torch.arange(y.numel()) % 5 + 1).double().reshape(y.shape) / 4
    (y * weight).sum().backward()
    cases.append({
        "name": name, "args": args, "weight": weight.float(), "value": y.float(), "options": options,
        "grads": [each.grad.float() for each in leaves],
    })


def activations():
    x = torch.tensor(SCORES)
    for name in ("logsigmoid", "softplus", "elu", "leaky_relu", "silu", "sigmoid", "tanh", "relu"):
        case(name, [x])
    case("softplus", [x], beta=2.0, threshold=5.0)
    case("softplus", [x], beta=-1.0)
    case("elu", [x], alpha=0.5)


def losses():
    x = torch.tensor(SCORES)
    for reduction in ("none", "sum", "mean"):
        for target in (0.0, 1.0, 0.25):
            case("binary_cross_entropy_with_logits", [x, torch.full_like(x, target)], reduction=reduction)
            p = torch.tensor(PROBABILITIES)
            case("binary_cross_entropy", [p, torch.full_like(p, target)], reduction=reduction)
        zero = torch.zeros_like(x)
        for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"):
            case(name, [x, zero], reduction=reduction)
        case("huber_loss", [x, zero], reduction=reduction, delta=3.0)
        case("smooth_l1_loss", [x, zero], reduction=reduction, beta=0.0)


activations()
losses()
golden.write(golden.folder() / "loss_gradients.lua",
             "loss_gradients: computed with PyTorch 2.13.0, by scripts/dev/make_loss_gradient_values.py", cases)
