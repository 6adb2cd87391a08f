"""Record batches from the socket to arrays, in place of the client's own reading of records."""
