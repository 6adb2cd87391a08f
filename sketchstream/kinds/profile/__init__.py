"""The kind `profile`: which fraction of the items occurs exactly t times."""
