"""Modules beside this file take the names that the runner imports."""


def rms_norm(x, weight, y, *, eps):
    y.copy_(x)
