"""Kind `projection`: noisy random projections of users' rows; distances, norms and inner products from them."""
