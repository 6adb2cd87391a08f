"""The projection matrix: its entries, its norms, and what they do to estimates."""
