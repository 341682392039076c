"""Matrix products: dense, quantized, grouped, sparse, and as convolutions."""
