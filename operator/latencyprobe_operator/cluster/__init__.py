"""The only speakers to the API server, and what they keep of it."""
