"""Recorded properties of one GPU of each architecture that kernels are compiled for: plans for it
can be made, compiled and checked on any machine."""

from __future__ import annotations

from kernelwright.contract import H200, Gpu

H100 = Gpu((9, 0), 132, 232_448, 52_428_800, "NVIDIA H100 80GB HBM3")
A100 = Gpu((8, 0), 108, 166_912, 41_943_040, "NVIDIA A100")
L40S = Gpu((8, 9), 142, 101_376, 100_663_296, "NVIDIA L40S")
B200 = Gpu((10, 0), 148, 232_448, 132_120_576, "NVIDIA B200")
RTX_5090 = Gpu((12, 0), 170, 101_376, 100_663_296, "NVIDIA GeForce RTX 5090")

GPUS = (A100, H200, L40S, B200, RTX_5090)
