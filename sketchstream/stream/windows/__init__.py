"""Windows of event time: how they are laid out, which of them a plan has, and where they begin."""
