"""Layer norm, RMS norm and what is fused with them."""
