"""The shortest spec there is."""


def reference(x, scale: float = 2.0):
    return x * scale
