"""Linear queries over columns, and the cells of records that they count."""
