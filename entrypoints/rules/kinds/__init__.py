"""Rules about one kind of run: of training, requests, generation, chains or a search for the largest batch."""
