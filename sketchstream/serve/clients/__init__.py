"""Who asks: clients, what they may see, and what the service has done for them."""
