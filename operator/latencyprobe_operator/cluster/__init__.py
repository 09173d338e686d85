"""The only speakers to the API server, what they keep of it, and how work that fails is repeated."""
