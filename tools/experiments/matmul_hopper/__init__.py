"""Matrix products for Hopper's tensor cores (wgmma, TMA), beside cuBLAS: README.md says what came
of them. Run from tools/experiments: `python -m matmul_hopper.sweep`."""
