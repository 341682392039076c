"""Records of measurements and proofs: reading, merging, metrics, the ledger."""
