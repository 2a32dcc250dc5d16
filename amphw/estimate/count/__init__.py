"""What a model costs, counted on its instances: firings, messages, operations and memory."""
