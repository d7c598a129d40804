"""A judge without an opinion."""


def compare(*args, **kwargs):
    return {"rms_ratio": 0.0, "p999_ratio": 0.0, "unwritten": 0}
