"""Layer norm, RMS norm and the operations that are fused with them."""
