"""Measures how a model is served: throughput, latencies, and the share of the memory's roof."""
