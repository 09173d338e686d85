"""Flame graphs of calls that took long: weights, folded stacks and their pictures. Pure: values in, text out."""
