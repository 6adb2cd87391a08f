"""Windows reconstructed in processes of their own: questions, turns and answers."""
